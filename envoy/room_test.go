package envoy_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// roomDecider admits everybody as who the headers say, and counts what is given back.
type roomDecider struct {
	*script
	given int
}

func (d *roomDecider) GiveBack(time.Time, *authz.Decision) { d.given++ }

func newRoomDecider() *roomDecider {
	return &roomDecider{script: &script{answer: func(_ context.Context, _ *authz.Request, d *authz.Decision) {
		d.Outcome, d.App, d.Worst = authz.Allowed, app(), -1
		d.Tenant, d.Principal, d.Class = "org:acme", "u_1", "batch"
	}}}
}

// checkWith is a check with the headers that every request has, and n of its own.
func checkWith(t *testing.T, n, size int) *authv3.CheckRequest {
	t.Helper()
	m := fullCheck(t)
	m.Attributes.Request.Http.Headers, m.Attributes.Request.Http.HeaderMap = map[string]string{}, &corev3.HeaderMap{}
	for i := range n {
		m.Attributes.Request.Http.HeaderMap.Headers = append(m.Attributes.Request.Http.HeaderMap.Headers,
			&corev3.HeaderValue{Key: fmt.Sprintf("x-%d", i), RawValue: []byte(strings.Repeat("v", size))})
	}
	return m
}

// The less important of mete's headers are left out where Envoy has no room for them; what
// says who calls never is: such a request is refused (issue 12, C4).
func TestRoom_C4_Headers(t *testing.T) {
	t.Parallel()
	who := []string{"x-mete-class", "x-mete-principal", "x-mete-tenant"}
	withID := append([]string{"x-quota-decision"}, who...)
	all := append([]string{"x-quota-state"}, withID...)
	for _, tt := range []struct {
		headers, size int
		want          []string // nil: 431
	}{
		{0, 1, all},
		{95, 1, all},
		{96, 1, withID},
		{97, 1, who},
		{98, 1, nil},
		{116, 1, nil},
		{117, 1, all},
		{200, 1, all},
		{1, 61_323, all},
		{1, 61_324, withID},
		{1, 61_338, withID},
		{1, 61_370, who},
		{1, 61_380, who},
		{1, 61_381, nil},
		{1, 65_533, nil},
		{1, 65_534, all},
		{1001, 1, all},
		{1 << 14, 1, all},
		{1<<14 + 1, 1, nil},
	} {
		d := newRoomDecider()
		s, conn := start(t, envoy.Options{Decider: d})
		r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), checkWith(t, tt.headers, tt.size))
		if err != nil {
			t.Errorf("%d headers of %d bytes: %v", tt.headers, tt.size, err)
			continue
		}
		var set []string
		for _, h := range r.GetOkResponse().GetHeaders() {
			set = append(set, h.GetHeader().GetKey())
		}
		slices.Sort(set)
		want := slices.Sorted(slices.Values(tt.want))
		if !slices.Equal(set, want) || (want == nil) != (r.GetDeniedResponse().GetStatus().GetCode() == http.StatusRequestHeaderFieldsTooLarge) {
			t.Errorf("%d headers of %d bytes: set %q, denied %v; want %q", tt.headers, tt.size, set, r.GetDeniedResponse(), want)
		}
		st := s.Stats()
		if st.LeftOutDecision != missing(want, headerDecision) || st.LeftOutState != missing(want, headerState) {
			t.Errorf("%d headers of %d bytes: counted %d and %d", tt.headers, tt.size, st.LeftOutDecision, st.LeftOutState)
		}
		if refused := uint64(oneIf(want == nil)); st.Checks[authz.HeadersTooLarge] != refused || tt.headers <= envoy.MaxFields && d.given != int(refused) {
			t.Errorf("%d headers of %d bytes: counted %v, %d given back", tt.headers, tt.size, st.Checks, d.given)
		}
	}
}

const (
	headerDecision = "x-quota-decision"
	headerState    = "x-quota-state"
)

// missing is 1 if an answer that admits lacks a header.
func missing(set []string, name string) uint64 {
	return uint64(oneIf(len(set) > 0 && !slices.Contains(set, name)))
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// A header that the request has already takes no room: it is replaced.
func TestRoom_C4_Replaced(t *testing.T) {
	t.Parallel()
	s, conn := start(t, envoy.Options{Decider: newRoomDecider(), MaxRequestHeaders: 5})
	m := checkWith(t, 0, 0)
	m.Attributes.Request.Http.Headers = map[string]string{
		"x-mete-tenant": "t", "x-mete-principal": "p", "x-mete-class": "c", headerDecision: "d", headerState: "s",
	}
	r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), m)
	if err != nil || len(r.GetOkResponse().GetHeaders()) != 5 {
		t.Errorf("%v, %v", r, err)
	}
	maps.DeleteFunc(m.Attributes.Request.Http.Headers, func(name, _ string) bool { return name == headerState })
	m.Attributes.Request.Http.Headers["x-other"] = ""
	if r, err = authv3.NewAuthorizationClient(conn).Check(t.Context(), m); err != nil || len(r.GetOkResponse().GetHeaders()) != 4 {
		t.Errorf("%v, %v", r, err)
	}
	if st := s.Stats(); st.LeftOutState != 1 || st.LeftOutDecision != 0 {
		t.Errorf("stats %+v", st)
	}
}
