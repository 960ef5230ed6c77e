package authz_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// deskPair are two replicas over one store that hear of each other.
func deskPair(t *testing.T, docs string) []*desk {
	t.Helper()
	m := &storetest.Memory{}
	boards := storetest.NewBoards(m, 3*time.Millisecond)
	var desks []*desk
	for i, holder := range []string{"r1", "r2"} {
		var k *desk
		board := boards.Join(func() *quota.Keeper { return k.keeper })
		k = newDeskOf(t, m, holder, docs, authz.Config{Process: uint64(i + 1)}, quota.KeeperConfig{Board: board})
		k.keeper.SetReplicas(2)
		desks = append(desks, k.seals())
	}
	return desks
}

// atOnce sends n requests at the same time, from so many callers, each of which the API
// takes a second for, in turn to the desks. It returns how many were admitted.
func atOnce(desks []*desk, req authz.Request, n, callers int) int64 {
	var admitted, next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				r := req
				r.Headers = slices.Clone(req.Headers)
				k := desks[i%int64(len(desks))]
				dec := k.ask(r)
				if !dec.Outcome.Admits() {
					continue
				}
				admitted.Add(1)
				token := string(k.d.Seal(nil, time.Now(), dec, nil)) // none, if only a bucket was charged
				time.Sleep(time.Second)
				if token != "" {
					k.end(token, answered(200))
				}
			}
		})
	}
	all.Wait()
	return admitted.Load()
}

// Whatever comes at once, no more is admitted than there is: of units that calls reserve,
// of a quota of requests, and of a bucket, which each of two replicas enforces in full.
func TestDecide_C173_ManyAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, path string
		n, callers  int
		one, two    int64 // admitted by one replica, and by two
	}{
		"calls that reserve": {"tokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}", "/call", 5, 5, 2, 2},
		"a quota":            {"hourly: {kind: quota, amount: 100, reset: {calendar: hour}}", "/", 300, 30, 100, 100},
		"a bucket":           {"per_second: {kind: rate, amount: 5, window: 1s}", "/", 40, 40, 5, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				until(t, "2026-12-10T11:10:00Z")
				if got := atOnce([]*desk{callsDesk(t, c.limit)}, at(c.path), c.n, c.callers); got != c.one {
					t.Errorf("one replica admits %d of %d, want %d", got, c.n, c.one)
				}
				if got := atOnce(deskPair(t, callsDocs(c.limit)), at(c.path), c.n, c.callers); got != c.two {
					t.Errorf("two replicas admit %d of %d, want %d", got, c.n, c.two)
				}
			})
		})
	}
}
