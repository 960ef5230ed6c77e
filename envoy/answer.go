package envoy

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// An answer holds what the parts of one answer share while it is written. It
// keeps its memory.
type answer struct {
	d   *authz.Decision
	app *plan.App // the zero App if the decision has none
	now time.Time
	pk  func(node string) [9]byte // nil: there is not a secret

	web         bool // a gRPC call that Envoy's filter has made of one to gRPC-Web
	unknownHost int  // status of a request that no app is for; 0: the default

	byRLS    bool          // Envoy's rate limit filter refuses with 429, whatever the reason
	retry    int64         // Retry-After in seconds; 0: waiting cannot help
	wait     time.Duration // the same, exact
	refused  []int         // limits that refused, the longest wait first
	visible  []int         // limits that the RateLimit fields show
	scopes   []string      // what tells limits of one name apart, one for each; nil: their nodes
	none     *plan.App     // stands in for the app of decisions that have none
	leave    leftOut       // headers for the API that there is no room for
	seen     []authz.Field // headers of the request
	scratch  []byte
	scratch2 []byte
}

// noApp stands in for the app of decisions that have none.
func noApp() *plan.App {
	return &plan.App{Headers: plan.Headers{RateLimit: plan.Never, XEnvoyRateLimited: true}}
}

func (a *answer) prepare(now time.Time, d *authz.Decision, pk func(string) [9]byte) {
	a.d, a.app, a.now, a.pk = d, d.App, now, pk
	if a.app == nil {
		if a.none == nil {
			a.none = noApp()
		}
		a.app = a.none
	}
	a.refused, a.retry, a.wait = a.refused[:0], 0, 0
	a.visible, a.scopes = a.visible[:0], nil
	for i := range d.Limits {
		if a.shown(i) {
			a.visible = append(a.visible, i)
		}
	}
	if d.Outcome.Admits() {
		return
	}
	for i := range d.Limits {
		if d.Limits[i].Refused {
			a.refused = append(a.refused, i)
		}
	}
	slices.SortStableFunc(a.refused, func(i, j int) int {
		if i == d.Worst || j == d.Worst {
			return cmp.Compare(btoi(j == d.Worst), btoi(i == d.Worst))
		}
		return cmp.Compare(waitOf(&d.Limits[j]), waitOf(&d.Limits[i]))
	})
	if d.RetryAfter > 0 && waits(d.Outcome) {
		a.wait = told(d.RetryAfter, &a.app.Headers)
		a.retry = seconds(a.wait)
	}
}

// told returns how long a caller is told to wait: with jitter on top, or, where that is
// more than it may be, jitter below the most.
func told(wait time.Duration, h *plan.Headers) time.Duration {
	var jitter time.Duration
	if h.RetryJitter > 0 {
		jitter = rand.N(h.RetryJitter + 1)
	}
	if most := h.RetryMost; most > 0 && wait+jitter > most {
		return max(time.Second, most-jitter)
	}
	return wait + jitter
}

// waits reports whether a refusal goes away by waiting. Who is refused for who it is
// has nothing to wait for.
func waits(o authz.Outcome) bool {
	return o == authz.RateLimited || o == authz.QuotaExceeded || o == authz.Unavailable
}

func (a *answer) release() {
	a.d, a.app, a.pk, a.scopes, a.leave, a.seen = nil, nil, nil, nil, leftOut{}, nil
	a.scratch, a.scratch2 = a.scratch[:0], a.scratch2[:0]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// waitOf is the wait for a limit; one that will never fit waits longest.
func waitOf(l *authz.LimitState) time.Duration {
	if l.Wait() < 0 {
		return 1<<63 - 1
	}
	return l.Wait()
}

// seconds rounds up, so that a retry after them is not too early (C127).
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// worst is the limit that a refusal is about; nil if it is about none.
func (a *answer) worst() *authz.LimitState {
	if len(a.refused) == 0 {
		return nil
	}
	return &a.d.Limits[a.refused[0]]
}

// hidden reports whether a limit's figures are another party's business.
func hidden(l *authz.LimitState) bool {
	return !l.Leaf && l.Limit.Disclose == plan.DiscloseNames
}

// metadataOfCheck is CheckResponse.dynamic_metadata.
const metadataOfCheck = 4

// admitted appends the CheckResponse that lets the request go on.
func (a *answer) admitted(b []byte, by Decider) []byte {
	b = append(b, 1<<3|2, 0) // status, with code 0
	b, ok := open(b, 3)      // ok_response
	id := a.d.ID.Append(a.scratch[:0])
	a.scratch = id
	if !a.leave.decision {
		b = putHeader(b, headerList{num: 2}, headerDecision, text(id))
	}
	if !a.leave.state {
		b = putHeader(b, headerList{num: 2}, headerState, state(a.d.Outcome))
	}
	b = a.identity(b, true)
	b = a.identity(b, false)
	b = a.unforge(b, a.seen)
	b = a.advertised(b, headerList{num: 6}, false)
	b = shut(b, ok)
	return a.metadata(b, metadataOfCheck, by, nil)
}

// identity appends the headers that tell the upstream who calls: those with a
// value are set, or else those without one are removed, so that what a client
// sent itself never arrives.
func (a *answer) identity(b []byte, set bool) []byte {
	b = identityHeader(b, set, headerTenant, a.d.Tenant)
	b = identityHeader(b, set, headerPrincipal, a.d.Principal)
	b = identityHeader(b, set, headerClass, a.d.Class)
	id := &a.app.Identity
	for i := range id.Tenant {
		if ownHeader(&id.Tenant[i]) {
			b = identityHeader(b, set, id.Tenant[i].Name, a.d.Tenant)
		}
	}
	for i := range id.Principal {
		src := &id.Principal[i]
		same := func(t plan.Source) bool { return t.Kind == src.Kind && t.Name == src.Name }
		if ownHeader(src) && !slices.ContainsFunc(id.Tenant, same) {
			b = identityHeader(b, set, src.Name, a.d.Principal)
		}
	}
	return b
}

func identityHeader(b []byte, set bool, name, value string) []byte {
	has := value != "" && clean(value)
	switch {
	case set && has:
		return putHeader(b, headerList{num: 2}, name, value)
	case !set && !has:
		return putText(b, 5, name)
	}
	return b
}

// ownHeader reports whether an identity comes from a request header that is ours to
// overwrite: not the target of the request, and not one of those set anyway.
func ownHeader(s *plan.Source) bool {
	if s.Kind != plan.SourceRequestHeader || s.Name == "" || s.Name[0] == ':' {
		return false
	}
	switch s.Name {
	case "host", headerTenant, headerPrincipal, headerClass, headerDecision, headerState:
		return false
	}
	return true
}

// denied appends the CheckResponse that refuses.
func (a *answer) denied(b []byte, accept string, grpc bool) []byte {
	st := a.statuses()
	b, m := open(b, 1) // status
	b = putNumber(b, 1, st.check)
	b = shut(b, m)
	b, m = open(b, 2) // denied_response
	b, h := open(b, 1)
	if a.web = grpc && a.web; a.web {
		b = putNumber(b, 1, http.StatusOK) // to a gRPC caller Envoy sends that by itself
	} else {
		b = putNumber(b, 1, st.http)
	}
	b = shut(b, h)
	contentType := a.contentType(accept)
	if !grpc {
		b = putHeader(b, headerList{num: 2}, "content-type", contentType)
	}
	b = a.refusalHeaders(b, headerList{num: 2}, st, grpc)
	if a.web { // with a body Envoy would take it for plain HTTP, and say UNAVAILABLE
		b = a.grpcMessage(b, headerList{num: 2})
		b = shut(b, m)
		return a.metadata(b, metadataOfCheck, nil, nil)
	}
	b, h = open(b, 3) // body
	if grpc {
		a.scratch = a.sentence(a.scratch[:0])
		b = append(b, cutText(text(a.scratch))...)
	} else {
		b = a.body(b)
	}
	b = shut(b, h)
	b = shut(b, m)
	return a.metadata(b, metadataOfCheck, nil, nil)
}

// refusalHeaders appends all headers of a refusal but its content type.
func (a *answer) refusalHeaders(b []byte, to headerList, st statuses, grpc bool) []byte {
	b = putHeader(b, to, "cache-control", "no-store")
	if a.retry > 0 {
		b = putInt(b, to, "retry-after", a.retry)
	}
	b = a.advertised(b, to, true)
	switch st.http {
	case http.StatusUnauthorized:
		if !a.byRLS {
			b = putHeader(b, to, "www-authenticate", a.challenge())
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		// The rate limit filter adds it by itself, ext_authz does not.
		if a.app.Headers.XEnvoyRateLimited && !to.plain {
			b = putHeader(b, to, "x-envoy-ratelimited", "true")
		}
	}
	if grpc {
		b = a.grpcHeaders(b, to, st)
	}
	return b
}

func putInt(b []byte, to headerList, name string, n int64) []byte {
	b, o := openHeader(b, to, name)
	b = strconv.AppendInt(b, n, 10)
	return shutHeader(b, o)
}

// challenge is what a 401 asks for (RFC 9110 wants it to ask for something).
func (a *answer) challenge() string {
	for _, s := range a.app.Identity.Tenant {
		if s.Kind == plan.SourceAPIKey && s.Name != "authorization" {
			return "ApiKey"
		}
	}
	return "Bearer"
}

// statuses are the codes of a refusal in the three places that need one.
type statuses struct {
	check uint64 // status.code of the CheckResponse, which only logs show
	http  uint64
	grpc  uint64
}

func statusOf(o authz.Outcome) statuses {
	switch o {
	case authz.RateLimited, authz.QuotaExceeded, authz.RequestTooLarge:
		return statuses{check: 8, http: http.StatusTooManyRequests, grpc: 8}
	case authz.Unavailable:
		return statuses{check: 8, http: http.StatusServiceUnavailable, grpc: 14}
	case authz.Unauthenticated:
		return statuses{check: 7, http: http.StatusUnauthorized, grpc: 16}
	case authz.HeadersTooLarge:
		return statuses{check: 8, http: http.StatusRequestHeaderFieldsTooLarge, grpc: 8}
	case authz.TenantUnknown, authz.Undecided, authz.NoApp, authz.NotReady,
		authz.Allowed, authz.Exempt, authz.Grace, authz.CountedOver, authz.UnavailableAllowed:
	}
	return statuses{check: 7, http: http.StatusForbidden, grpc: 7}
}
