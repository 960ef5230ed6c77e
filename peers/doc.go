// Package peers brings settlements to the replica that decided.
//
// Envoy's access log reaches any replica, and so do the repeats of an entry. A replica
// finds a repeat by a memory of its own numbers, so each settlement goes to the process
// that decided, in batches; once that is gone, to the one that takes its place. Who
// that is, all replicas compute alike, so repeats meet there, too (C134).
//
// A settlement whose outcome is not known is repeated where it was sent and nowhere else:
// settled twice, units would come from nothing, or be billed twice. If it can be repeated there
// no more it is dropped and counted, and what was reserved stays used.
package peers
