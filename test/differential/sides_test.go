package differential_test

import (
	"fmt"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// sides are both services with one configuration, in one bubble.
type sides struct {
	t     *testing.T
	there *model
	here  *desk
}

// newSides writes mete beside the rules for mete only: "" is nothing.
func newSides(t *testing.T, mete string, rules ...*rule) *sides {
	t.Helper()
	c := &config{domain: "edge", rules: rules}
	there := newModel(c, ways{})
	own := *c
	own.mete = mete
	return &sides{t, there, newDesk(t, own.yaml())}
}

// at lets time pass until a moment, such as 2027-02-28T23:58:00Z.
func at(t *testing.T, moment string) {
	t.Helper()
	m, err := time.Parse(time.RFC3339, moment)
	if err != nil || m.Before(time.Now()) {
		t.Fatalf("%s is no moment to come: %v", moment, err)
	}
	time.Sleep(time.Until(m))
}

// both sends a request to both and demands of each what is said, in the words of words.
func (s *sides) both(r request, there, here string) {
	s.t.Helper()
	if got := words(s.there.answer(time.Now().UTC(), r)); got != there {
		s.t.Errorf("%v: envoyproxy/ratelimit says %s, not %s", r, got, there)
	}
	s.mete(r, here)
}

func (s *sides) mete(r request, want string) { s.t.Helper(); s.here.says(r, want) }

// says demands an answer.
func (k *desk) says(r request, want string) {
	k.t.Helper()
	got, err := k.ask(r)
	if err != nil {
		k.t.Fatalf("%v: %v", r, err)
	}
	if w := words(got); w != want {
		k.t.Errorf("%v: mete says %s, not %s", r, w, want)
	}
}

// words are an answer, a comma between its descriptors: what remains of the limit, and "over" before it where it is over. "-" is no
// limit, "all" an unlimited one. A request that is refused though none of its statuses says so, or let through though one does, is
// told apart by "REFUSED:" and "OK:".
func words(a answer) string {
	out, over := "", false
	for i, s := range a.statuses {
		if i > 0 {
			out += ", "
		}
		over = over || s.over
		if s.over {
			out += "over "
		}
		switch {
		case s.limited:
			out += fmt.Sprint(s.remaining)
		case s.remaining > 0:
			out += "all"
		default:
			out += "-"
		}
	}
	switch {
	case a.over && !over:
		return "REFUSED: " + out
	case !a.over && over:
		return "OK: " + out
	}
	return out
}

// one is a request with one descriptor of keys and values.
func one(pairs ...string) request { return many(pairs) }

// many is a request with a descriptor for each list of keys and values.
func many(descriptors ...[]string) request {
	r := request{domain: "edge"}
	for _, pairs := range descriptors {
		d := descriptor{}
		for i := 0; i < len(pairs); i += 2 {
			d.entries = append(d.entries, entry{pairs[i], pairs[i+1]})
		}
		r.descriptors = append(r.descriptors, d)
	}
	return r
}

// hits makes the first descriptor ask for n.
func (r request) hitting(n uint64) request {
	r.descriptors[0].hits = &n
	return r
}

func (r request) refunding() request {
	r.descriptors[0].negative = true
	return r
}

func (r request) with(n uint32, u unit) request {
	r.descriptors[0].override = &override{n, u}
	return r
}

func per(n uint32, u unit) *limit { return &limit{unit: u, perUnit: n} }

// errs demands a gRPC error of mete.
func (s *sides) errs(w *rls.RateLimitRequest, want codes.Code) {
	s.t.Helper()
	if _, err := s.here.client.ShouldRateLimit(s.t.Context(), w); grpcstatus.Code(err) != want {
		s.t.Errorf("%v: %v, not %v", w, err, want)
	}
}

func (s *sides) reset(r request, there, here time.Duration) {
	s.t.Helper()
	want := s.there.answer(time.Now().UTC(), r)
	got, err := s.here.ask(r)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, side := range []struct {
		who  string
		got  int64
		want time.Duration
	}{{"envoyproxy/ratelimit", want.statuses[0].reset, there}, {"mete", got.statuses[0].reset, here}} {
		if side.got != int64(side.want/time.Second) && (side.want >= 0 || side.got >= 0) {
			s.t.Errorf("%v: %s says %d s until reset, not %v", r, side.who, side.got, side.want)
		}
	}
}
