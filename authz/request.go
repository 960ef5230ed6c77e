package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
)

// A Request is what a caller of Decide knows of one request. The strings may
// point into the caller's buffers: nothing of a Request is kept after Decide
// returns but what the Decision copies.
type Request struct {
	// App is the app's name if the caller knows it; else the context extension
	// "mete-app" tells, else Domain, else Host.
	App string
	// Domain is the rate limit domain, for callers that come by one (RLS). If it
	// is set the app is the one that is bound to it, and no other.
	Domain string

	Method string
	Host   string
	Path   string // as received, with the query

	Headers    []Field // names in lower case
	Extensions []Field // Envoy's context extensions
	Metadata   Metadata
	Peer       string // principal of the verified client certificate, "" without one

	// Start is when the request began by Envoy's clock; zero: unknown. It
	// decides the window (A17).
	Start time.Time

	// Tenant is who calls, for callers that say it themselves (RLS); then no
	// credential is looked for.
	Tenant string
	// Route is a rule's name, for callers that say it themselves.
	Route string
	// Class is the name of one of the app's classes, for callers that say it themselves;
	// one that the app does not have counts as none.
	Class string
	// Hits multiplies what the route costs; 0 counts as 1.
	Hits int64
	// Units are what the request reserves in place of what its route says, whatever
	// Hits is. No unit is there twice.
	Units []UnitAmount
	// CheckOnly charges nothing and opens nothing: the answer reports whether
	// anything at all is left (case C046).
	CheckOnly bool

	// Address is the client's address as Envoy tells it, "" if that is none of IP.
	Address string

	claim [8]string // where the path of a claim is put together without allocating
	// name and address are where names are put together without allocating.
	name    [plan.MaxTenantName]byte
	address [64]byte
	noted   uint64 // what of the request is in the counts already, see notedRoute
}

// A UnitAmount is an amount of a unit: from 0 to [plan.MaxAmount].
type UnitAmount struct {
	Unit   string
	Amount int64
}

// A Field is a name and its value.
type Field struct{ Name, Value string }

// Metadata is the request metadata that Envoy's filters have verified.
type Metadata interface {
	// Find returns what there is at path in a namespace, and its text if that is a
	// Value: a text, a whole number below 2^53 or a boolean. A path that leads through
	// anything but maps, and metadata that cannot be read, are Other; one that leads
	// through null is Null. An empty path asks for the namespace: Other or Nothing.
	Find(namespace string, path []string) (value string, found Found)
}

// find is Find of r's metadata, if it has any.
func (r *Request) find(namespace string, path []string) (string, Found) {
	if r.Metadata == nil {
		return "", Nothing
	}
	return r.Metadata.Find(namespace, path)
}

// Header returns the first value of a header, by its lower-case name.
func (r *Request) Header(name string) (string, bool) { return find(r.Headers, name) }

// identity returns the value of a header that names a caller. Lines that differ are
// Other: the first one must not decide what Envoy and the upstream see as a list.
func (r *Request) identity(name string) (string, Found) {
	value, found := "", Nothing
	for i := range r.Headers {
		switch h := &r.Headers[i]; {
		case h.Name != name:
		case found == Nothing:
			value, found = h.Value, Value
		case h.Value != value:
			return "", Other
		}
	}
	return value, found
}

// lines returns the last value of a header and how many lines it has.
func (r *Request) lines(name string) (value string, n int) {
	for i := range r.Headers {
		if r.Headers[i].Name == name {
			value = r.Headers[i].Value
			n++
		}
	}
	return value, n
}

// Extension returns a context extension.
func (r *Request) Extension(name string) (string, bool) { return find(r.Extensions, name) }

func find(fields []Field, name string) (string, bool) {
	for i := range fields {
		if fields[i].Name == name {
			return fields[i].Value, true
		}
	}
	return "", false
}
