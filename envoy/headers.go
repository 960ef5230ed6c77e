package envoy

import (
	"strings"
	"unicode/utf8"

	"github.com/meteproject/mete/authz"
)

// The headers that an upstream can trust, since every admitted request has them
// set or removed.
const (
	headerTenant    = "x-mete-tenant"
	headerPrincipal = "x-mete-principal"
	headerClass     = "x-mete-class"
	headerDecision  = "x-quota-decision"
	headerState     = "x-quota-state"
)

// state is the value of x-quota-state, by which a route or an upstream can do less
// instead of refusing (P66).
func state(o authz.Outcome) string {
	switch o {
	case authz.Grace:
		return "grace"
	case authz.CountedOver:
		return "over"
	case authz.UnavailableAllowed:
		return "unchecked"
	case authz.Exempt:
		return "exempt"
	case authz.Allowed, authz.Undecided, authz.RateLimited, authz.QuotaExceeded, authz.RequestTooLarge,
		authz.Unauthenticated, authz.TenantUnknown, authz.Unavailable, authz.HeadersTooLarge,
		authz.NoApp, authz.NotReady:
	}
	return "ok" // refusals have no such header
}

// A headerList is a field that holds headers.
type headerList struct {
	num fieldNumber
	// plain: they are HeaderValues, which add; else HeaderValueOptions, which
	// replace.
	plain bool
}

// putHeader appends a header. Envoy's versions disagree on which of append and
// append_action counts, so an option has both; and they read value only, never
// raw_value (seen with Envoy 1.40).
func putHeader(b []byte, to headerList, name, value string) []byte {
	b, o := openHeader(b, to, name)
	b = append(b, value...)
	return shutHeader(b, o)
}

// A headerMark is a header whose value is being appended; option is 0 for a plain
// one.
type headerMark struct{ option, header, value int }

func openHeader(b []byte, to headerList, name string) ([]byte, headerMark) {
	var o headerMark
	if to.plain {
		b, o.header = open(b, to.num)
	} else {
		b, o.option = open(b, to.num)
		b, o.header = open(b, 1)
	}
	b = putText(b, 1, name)
	b, o.value = open(b, 2)
	return b, o
}

func shutHeader(b []byte, o headerMark) []byte {
	tame(b[o.value:])
	b = shut(b, o.value)
	b = shut(b, o.header)
	if o.option == 0 {
		return b
	}
	b = append(b, 2<<3|2, 0) // append: a BoolValue that is false
	b = append(b, 3<<3, 2)   // append_action: OVERWRITE_IF_EXISTS_OR_ADD
	return shut(b, o.option)
}

// tame replaces each control character by "?". Envoy writes a line feed to an
// HTTP/1 client as it is, and the rest of the value would be another header.
func tame(value []byte) {
	for i, ch := range value {
		if control(ch) {
			value[i] = '?'
		}
	}
}

func control(ch byte) bool { return ch < 0x20 && ch != '\t' || ch == 0x7f }

// clean reports whether a value may be sent unchanged. Identities that are not
// clean are not sent at all: a changed one would be somebody else's.
func clean(value string) bool {
	for i := range len(value) {
		if control(value[i]) {
			return false
		}
	}
	if strings.Trim(value, " \t") != value {
		return false // HTTP cuts these off
	}
	return utf8.ValidString(value) // Envoy's decoder refuses the whole answer otherwise
}

// overWeb reports whether a request that is gRPC now has come as one to gRPC-Web: Envoy's
// filter for that changes the content type and leaves the rest.
func overWeb(req *authz.Request, accept string) bool {
	const name = "application/grpc-web"
	_, web := req.Header("x-grpc-web")
	return web || len(accept) >= len(name) && strings.EqualFold(accept[:len(name)], name)
}

// isGRPC reports whether a content type is gRPC's own. gRPC-Web gets plain HTTP
// answers, unless Envoy's filter has made gRPC of it before mete is asked.
func isGRPC(contentType string) bool {
	const name = "application/grpc"
	if len(contentType) < len(name) || !strings.EqualFold(contentType[:len(name)], name) {
		return false
	}
	rest := contentType[len(name):]
	return rest == "" || rest[0] == '+' || rest[0] == ';' || rest[0] == ' '
}

// wantsProblem reports whether an Accept header names application/problem+json.
func wantsProblem(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(kind), typeProblem) {
			return !unwanted(params)
		}
	}
	return false
}

// unwanted reports whether the parameters of a media range hold a weight of 0.
func unwanted(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, q, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			return strings.Trim(strings.TrimSpace(q), "0.") == ""
		}
	}
	return false
}
