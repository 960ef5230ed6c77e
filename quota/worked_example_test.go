package quota_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/store/storetest"
)

// 10,000,000 units a day on 40 replicas, 80 requests a second on average and 400 at the
// peak: a replica holds at most 100 units, all together 4,000, which is 0.04 %, and the
// store hears of the tenant a few times a second instead of 400 times. At 70 % used
// (A28) and 10 s of demand (Q36) that is 40 times each 7 s.
func TestWorkedExample_Q36_Q39_Q42_Q43(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const replicas, amount = 40, 10_000_000
		m := &storetest.Memory{}
		fleet := make([]*till, replicas)
		for i := range fleet {
			fleet[i] = open(t, m, fmt.Sprint("frontend", i), terms(amount))
			fleet[i].keeper.SetReplicas(replicas)
		}
		var stop atomic.Bool
		var most int64
		go func() {
			for !stop.Load() {
				most = max(most, m.Account(key()).Leased())
				for _, h := range m.Account(key()).Holders {
					var held int64
					for _, l := range h.Leases {
						held += l.Units
					}
					if held > 100 {
						t.Errorf("%s holds %d units", h.ID, held)
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		for _, part := range []struct {
			perSecond, seconds int
			calls              float64 // a second, at most
		}{{80, 60, 9}, {80, 120, 6.3}, {400, 60, 10}, {400, 120, 6.3}} {
			before := calls(fleet)
			rush(fleet, part.perSecond, part.seconds)
			if perSecond := float64(calls(fleet)-before) / float64(part.seconds); perSecond > part.calls {
				t.Errorf("at %d requests a second: %.1f calls of the store, want at most %v", part.perSecond, perSecond, part.calls)
			} else {
				t.Logf("at %d requests a second: %.1f calls of the store", part.perSecond, perSecond)
			}
		}
		stop.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		t.Logf("at most %d units were out", most)
		if most > 4000 {
			t.Errorf("%d units were out on lease, want at most 4,000", most)
		}
	})
}

// rush lets all requests of a tenant come to all replicas in turn, evenly.
func rush(fleet []*till, perSecond, seconds int) {
	every := time.Duration(len(fleet)) * time.Second / time.Duration(perSecond)
	var all sync.WaitGroup
	for i, r := range fleet {
		all.Go(func() {
			time.Sleep(every * time.Duration(i) / time.Duration(len(fleet)))
			for range perSecond * seconds / len(fleet) {
				r.mustCharge(1)
				time.Sleep(every)
			}
		})
	}
	all.Wait()
}

func calls(fleet []*till) int {
	n := 0
	for _, r := range fleet {
		n += len(r.store.calls())
	}
	return n
}
