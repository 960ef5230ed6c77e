// Package envoy speaks Envoy's protocols: ext_authz, the rate limit service, and the
// access log service. Nothing else of ours knows their messages.
//
// An answer is never sent empty, since Envoy takes an empty answer for «allowed»:
// whatever cannot be decided is a gRPC error, whatever is refused is an answer
// (case C117).
//
// Messages are read and written by hand, straight from and to the buffers of
// gRPC. Text that is not UTF-8 is decided like any other: stock decoders refuse
// the whole message, and Envoy then lets the request through.
//
// An admission leaves a reservation in the request's metadata. The access log brings
// it back with how the request ended; so can a rate limit descriptor.
//
// Read check.go first, then answer.go; accesslog.go, then logentry.go and ending.go.
package envoy
