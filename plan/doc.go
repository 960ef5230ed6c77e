// Package plan holds the documents that people write: apps, plans, routes,
// tenants, credentials and webhooks. It decodes them strictly, checks them
// against each other and compiles them into one immutable [Snapshot].
//
// One rule holds: nothing that is accepted goes unenforced. A field that this
// version cannot enforce is refused with that reason, a field that nobody knows
// is refused by its position, and a bad document changes nothing.
//
// Beside them it reads the descriptors of envoyproxy/ratelimit ([DecodeAll]), merges
// those of a domain ([MergeRateLimits]) and matches them ([DescriptorTable]).
//
// The package is pure: it reads no clock, no file and no network.
package plan
