// Package envoy speaks Envoy's protocols: ext_authz and the rate limit service.
// Nothing else of ours knows their messages.
//
// An answer is never sent empty, since Envoy takes an empty answer for «allowed»:
// whatever cannot be decided is a gRPC error, whatever is refused is an answer
// (case C117).
//
// Messages are read and written by hand, straight from and to the buffers of
// gRPC. Text that is not UTF-8 is decided like any other: stock decoders refuse
// the whole message, and Envoy then lets the request through.
//
// Read check.go first, then answer.go.
package envoy
