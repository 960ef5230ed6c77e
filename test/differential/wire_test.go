package differential_test

import (
	"fmt"
	"strings"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// wire returns the request as Envoy sends it.
func (r request) wire() *rls.RateLimitRequest {
	w := &rls.RateLimitRequest{Domain: r.domain, HitsAddend: r.hits}
	for _, d := range r.descriptors {
		w.Descriptors = append(w.Descriptors, d.wire())
	}
	return w
}

func (d descriptor) wire() *rlcommon.RateLimitDescriptor {
	w := &rlcommon.RateLimitDescriptor{IsNegativeHits: d.negative}
	for _, e := range d.entries {
		w.Entries = append(w.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: e.key, Value: e.value})
	}
	if d.hits != nil {
		w.HitsAddend = wrapperspb.UInt64(*d.hits)
	}
	if o := d.override; o != nil {
		w.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: o.perUnit, Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(string(o.unit))]),
		}
	}
	return w
}

// readAnswer reads a response. One that has what no response should have is an error.
func readAnswer(w *rls.RateLimitResponse) (answer, error) {
	var a answer
	var err error
	if a.over, err = over(w.GetOverallCode()); err != nil {
		return a, err
	}
	for _, s := range w.GetStatuses() {
		st := status{remaining: s.GetLimitRemaining(), reset: -1}
		if st.over, err = over(s.GetCode()); err != nil {
			return a, err
		}
		if l := s.GetCurrentLimit(); l != nil {
			st.limited, st.name, st.perUnit = true, l.GetName(), l.GetRequestsPerUnit()
			st.unit = unit(strings.ToLower(l.GetUnit().String()))
		}
		if d := s.GetDurationUntilReset(); d != nil {
			if st.reset = d.GetSeconds(); d.GetNanos() != 0 {
				return a, fmt.Errorf("a reset of %v, which is not whole seconds", d.AsDuration())
			}
		}
		a.statuses = append(a.statuses, st)
	}
	return a, nil
}

func over(code rls.RateLimitResponse_Code) (bool, error) {
	switch code {
	case rls.RateLimitResponse_OK:
		return false, nil
	case rls.RateLimitResponse_OVER_LIMIT:
		return true, nil
	case rls.RateLimitResponse_UNKNOWN:
	}
	return false, fmt.Errorf("code %v, which Envoy takes for OK", code)
}

// differ says in what two answers differ; "": in nothing.
func differ(want, got answer) string {
	switch {
	case want.over != got.over:
		return fmt.Sprintf("over: %v, not %v", got.over, want.over)
	case len(want.statuses) != len(got.statuses):
		return fmt.Sprintf("%d statuses, not %d", len(got.statuses), len(want.statuses))
	}
	for i, w := range want.statuses {
		g := got.statuses[i]
		w.never = false // of the model's own
		if w.remaining == 0 && g.remaining == w.spare {
			w.remaining = w.spare
		}
		w.spare = 0
		if g != w {
			return fmt.Sprintf("status %d: %v, not %v", i, g, w)
		}
	}
	return ""
}

func (a answer) String() string {
	word := "OK"
	if a.over {
		word = "OVER"
	}
	return fmt.Sprintf("%s %v", word, a.statuses)
}

func (s status) String() string {
	var b strings.Builder
	b.WriteString("OK")
	if s.over {
		b.Reset()
		b.WriteString("OVER")
	}
	if s.limited {
		fmt.Fprintf(&b, " of %d/%s", s.perUnit, s.unit)
	}
	if s.name != "" {
		fmt.Fprintf(&b, " %q", s.name)
	}
	fmt.Fprintf(&b, " remaining %d", s.remaining)
	if s.reset >= 0 {
		fmt.Fprintf(&b, " reset %ds", s.reset)
	}
	return b.String()
}

func (r request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s hits %d {", r.domain, r.hits)
	for _, d := range r.descriptors {
		fmt.Fprintf(&b, " %q", d.entries)
		if d.hits != nil {
			fmt.Fprintf(&b, " hits %d", *d.hits)
		}
		if d.negative {
			b.WriteString(" negative")
		}
		if d.override != nil {
			fmt.Fprintf(&b, " limit %d/%s", d.override.perUnit, d.override.unit)
		}
		b.WriteString(";")
	}
	return b.String() + " }"
}
