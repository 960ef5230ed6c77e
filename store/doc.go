// Package store keeps documents and accounts in etcd.
//
// One rule holds: what is enforced is in etcd before it is enforced, and nothing
// half-written is. [Accounts] changes an account only by compare and swap,
// together with the revisions of the terms it was computed from. [Documents]
// watches what people write, publishes what is valid of it and hands out
// immutable snapshots. [Members] tells which replicas live and which may still
// hold units.
//
// The key layout is in keys.go and nowhere else.
package store
