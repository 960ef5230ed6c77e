package e2e_test

import (
	"fmt"
	"sync"
	"testing"
)

// Callers that come at once, through one Envoy and through those of two replicas, get no
// more than there is together; a rate limit holds at each replica in full.
func TestBurst_C173_ManyAtOnce(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	second := newReplica(t, first)
	for name, c := range map[string]struct {
		limit, rule string
		n           int // at once
		one, two    int // served through one Envoy, and through two
	}{
		"calls that reserve": {"tokens: {kind: quota, unit: tokens, amount: 10000, reset: {calendar: month}}", "units: {tokens: {reserve: 4000}}", 5, 2, 2},
		"a quota":            {"monthly: {kind: quota, amount: 100, reset: {calendar: month}}", "weight: 1", 300, 100, 100},
		"a bucket":           {"hourly: {kind: rate, amount: 5, window: 1h}", "weight: 1", 40, 5, 10},
	} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprint(name, both), func(t *testing.T) {
				t.Parallel()
				a := newApp(t, first, c.limit, "units: {tokens: {title: tokens}}")
				a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, "  app: "+a.name+"\n  rules:\n    - {name: call, match: {path: /hello}, "+c.rule+"}")})
				a.awaitRoutes(t)
				if !both {
					if got := a.burst(t, first, c.n); got != c.one {
						t.Errorf("%d of %d served, want %d", got, c.n, c.one)
					}
					return
				}
				b := a.on(t, second)
				b.awaitRoutes(t)
				b.sent = 1_000_000 // names of its own
				var served [2]int
				var halves sync.WaitGroup
				halves.Go(func() { served[0] = a.burst(t, first, c.n-c.n/2) })
				halves.Go(func() { served[1] = b.burst(t, second, c.n/2) })
				halves.Wait()
				if got := served[0] + served[1]; got != c.two {
					t.Errorf("%v of %d served, want %d in all", served, c.n, c.two)
				}
			})
		}
	}
}
