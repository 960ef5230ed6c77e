package quota_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A watched store checks the rule after every operation that reaches the store.
type watched struct {
	quota.Store
	memory  *storetest.Memory
	ceiling int64
	broken  *atomic.Pointer[string]
}

func (w *watched) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	res, err := w.Store.Apply(ctx, op)
	if a := w.memory.Account(op.Key); a.Used()+a.Leased() > w.ceiling {
		s := fmt.Sprintf("used %d + leased %d > %d after %+v", a.Used(), a.Leased(), w.ceiling, op)
		w.broken.CompareAndSwap(nil, &s)
	}
	return res, err
}

// flaky fails some calls before and some after they were applied.
type flaky struct {
	quota.Store
	mu  sync.Mutex
	rng *rand.Rand
}

func (f *flaky) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	f.mu.Lock()
	roll, delay := f.rng.IntN(20), time.Duration(f.rng.IntN(30))*time.Millisecond
	f.mu.Unlock()
	time.Sleep(delay)
	if roll == 0 {
		return quota.Result{}, context.DeadlineExceeded
	}
	res, err := f.Store.Apply(ctx, op)
	if roll == 1 {
		return quota.Result{}, context.DeadlineExceeded
	}
	return res, err
}

// TestFleet_A34_C102 plays replicas with skewed clocks over a store that loses
// requests and replies. Nobody is ever admitted past the quota, every admitted
// unit is counted once, and in the end the whole quota has been of use.
func TestFleet_A34_C102_NeverMoreThanTheQuota(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playFleet(t, seed, 1000) })
		})
	}
}

func playFleet(t *testing.T, seed uint64, amount int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &storetest.Memory{}
	var broken atomic.Pointer[string]
	var admitted atomic.Int64
	var load sync.WaitGroup
	for i := range 2 + rng.IntN(4) {
		skew := time.Duration(rng.IntN(4000)-2000) * time.Millisecond
		r := openWith(t, m, fmt.Sprint("r", i), terms(amount), func() time.Time { return time.Now().Add(skew) })
		r.store.use(&flaky{
			Store: &watched{Store: m, memory: m, ceiling: amount, broken: &broken},
			rng:   rand.New(rand.NewPCG(seed, uint64(i)+2)),
		})
		r.keeper.SetReplicas(3)
		own := rand.New(rand.NewPCG(seed, uint64(i)+100))
		load.Go(func() {
			for range 400 {
				n := 1 + own.Int64N(5)
				if ok, _ := r.charge(n); ok {
					admitted.Add(n)
					if own.IntN(10) == 0 {
						r.lock.Lock()
						r.purse.Refund(r.at(), n, 0)
						r.lock.Unlock()
						admitted.Add(-n)
					}
				}
				time.Sleep(time.Duration(own.IntN(400)) * time.Millisecond)
			}
		})
	}
	load.Wait()
	time.Sleep(3 * time.Minute) // idle purses close
	synctest.Wait()
	if s := broken.Load(); s != nil {
		t.Fatalf("the rule was broken: %s", *s)
	}
	if n := admitted.Load(); n > amount {
		t.Fatalf("%d units admitted of %d", n, amount)
	}
	a := m.Account(key())
	if a.Used() != admitted.Load() || a.Leased() != 0 {
		t.Fatalf("the account says used %d, leased %d; %d were admitted", a.Used(), a.Leased(), admitted.Load())
	}
	if n := admitted.Load(); n < amount*9/10 {
		t.Fatalf("only %d of %d units were of use though more was asked for", n, amount)
	}
}
