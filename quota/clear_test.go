package quota_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// P36: all that was reported is forgotten, and nothing else.
func TestCleared_P36_WhatWasUsedIsGoneAndTheRestStays(t *testing.T) {
	t.Parallel()
	a := quota.Account{
		Base: 11, Unknown: []byte("newer"),
		Holders: []quota.Holder{
			{ID: "a", Seq: 2, Used: 25, Leases: []quota.Lease{{ID: 1, Units: 60}, {ID: 2, Units: 15, Exact: true}}},
			{ID: "b", Seq: 7, Used: -5, Unknown: []byte("newer still")},
		},
	}
	got, used := a.Cleared()
	want := a
	want.Base = -20
	if used != 31 || !reflect.DeepEqual(got, want) || got.Used() != 0 || got.Leased() != 75 {
		t.Errorf("got %+v and %d, want %+v and 31", got, used, want)
	}
	if again, used := got.Cleared(); used != 0 || !reflect.DeepEqual(again, got) {
		t.Errorf("again: got %+v and %d", again, used)
	}
	if a.Base != 11 {
		t.Errorf("the account that was given has changed: %+v", a)
	}
}

// clearing is an account that some holders use and somebody clears, as its model knows
// it.
type clearing struct {
	a       quota.Account
	ceiling int64
	sent    map[string]quota.Operation // the last one, which may be repeated
	used    map[string]int64           // by holders that are there
	gone    int64                      // by those that were folded
	cleared int64
}

func (c *clearing) check(t *rapid.T) {
	total := c.gone - c.cleared
	for _, n := range c.used {
		total += n
	}
	if c.a.Used() != total {
		t.Fatalf("used %d, want %d: %+v", c.a.Used(), total, c.a)
	}
	if c.a.Leased() > 0 && c.a.Used()+c.a.Leased() > c.ceiling {
		t.Fatalf("used %d + leased %d > %d", c.a.Used(), c.a.Leased(), c.ceiling)
	}
}

// apply sends an operation of a holder that spends from its leases, gives back, or asks
// for more.
func (c *clearing) apply(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "holder")
	var own quota.Holder
	for _, h := range c.a.Holders {
		if h.ID == id {
			own = h
		}
	}
	op := quota.Operation{Holder: id, Seq: own.Seq + 1, Used: c.used[id], Ceiling: c.ceiling, Replicas: 2}
	for _, l := range own.Leases {
		spent := rapid.Int64Range(0, l.Units).Draw(t, "spent")
		op.Used += spent
		if rapid.Bool().Draw(t, "holds") {
			op.Hold = append(op.Hold, quota.Lease{ID: l.ID, Units: l.Units - spent})
		}
	}
	op.Used -= rapid.Int64Range(0, max(0, op.Used)).Draw(t, "given back") / 4
	if op.Want = rapid.Int64Range(0, 40).Draw(t, "want"); op.Want > 0 {
		op.Min = 1
	}
	c.a, _ = quota.Apply(c.a, op)
	c.used[id], c.sent[id] = op.Used, op
	c.check(t)
}

// repeat sends an operation again, whose reply was lost.
func (c *clearing) repeat(t *rapid.T) {
	op, sent := c.sent[rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "holder")]
	if !sent {
		t.Skip()
	}
	before := clone(c.a)
	after, _ := quota.Apply(c.a, op)
	if !reflect.DeepEqual(before, clone(after)) {
		t.Fatalf("a repeat of %+v makes %+v of %+v", op, after, before)
	}
}

func (c *clearing) fold(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "holder")
	c.a, _ = quota.Reclaim(c.a, []string{id})
	c.gone += c.used[id]
	delete(c.used, id)
	delete(c.sent, id) // its liable key is gone: nothing of it is applied any more
	c.check(t)
}

func (c *clearing) clear(t *rapid.T) {
	before := clone(c.a)
	after, used := c.a.Cleared()
	if after.Used() != 0 || used != before.Used() || after.Leased() != before.Leased() || !reflect.DeepEqual(clone(c.a), before) {
		t.Fatalf("%+v is cleared to %+v, of %d", before, after, used)
	}
	c.a, c.cleared = after, c.cleared+used
	c.check(t)
}

// P36: whatever comes in whatever order - reports, refunds, lost replies, holders that
// are folded - what is used is what was reported, less what was cleared.
func TestCleared_P36_EveryReportCountsOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &clearing{
			ceiling: rapid.Int64Range(0, 200).Draw(t, "ceiling"),
			sent:    map[string]quota.Operation{}, used: map[string]int64{},
		}
		t.Repeat(map[string]func(*rapid.T){"apply": c.apply, "repeat": c.repeat, "fold": c.fold, "clear": c.clear})
	})
}

// P36, in a fleet under all that goes wrong: every unit is counted or was cleared, and
// nobody is admitted past the amount and what was cleared.
func TestSimulation_P36_AccountsAreCleared(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= *simRuns; seed++ {
		if *simSeed != 0 && seed != *simSeed {
			continue
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			p := planOf(seed)
			p.clears = true
			s := play(t, seed, p)
			var admitted, cleared int64
			for key, n := range s.admitted {
				admitted, cleared = admitted+n, cleared+s.cleared[key]
			}
			if admitted < 2000 || cleared < 500 {
				t.Errorf("%d units admitted and %d cleared are too few to tell anything", admitted, cleared)
			}
		})
	}
}

// voided is terms after leases were voided by hand.
func voided(amount, void int64) *quota.Terms {
	tm := terms(amount)
	tm.Version, tm.Void = 1+void, void
	return tm
}

func (r *till) hear(tm *quota.Terms) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.purse.SetTerms(r.at(), tm)
}

// look is what somebody sees who only looks.
func (r *till) look() (anything bool, used, left int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.purse.Any(r.at()), r.purse.Used(), r.purse.Left(r.at())
}

// P36: a caller that is refused is admitted as soon as the replica hears that the account
// was cleared, and one that only looks sees it at the same moment, though no request has
// asked the store since.
func TestPurse_P36_C046_ARefusedCallerIsAdmittedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		a, b := open(t, m, "a", terms(20)), open(t, m, "b", terms(20))
		a.mustCharge(1)
		b.mustCharge(1)
		for _, r := range []*till{a, b, a, b} {
			for ok := true; ok; {
				ok, _ = r.charge(1)
			}
		}
		for _, r := range []*till{a, b} {
			if something, _, left := r.look(); something || left != 0 {
				t.Fatalf("%d left before", left)
			}
		}
		if used := m.Clear(key()); used != 20 {
			t.Fatalf("cleared of %d, want 20", used)
		}
		for _, r := range []*till{a, b} {
			r.hear(voided(20, 1))
			if something, used, left := r.look(); !something || used != 0 || left != 20 {
				t.Errorf("%s sees anything %v, used %d, left %d; want 0 and 20", r.store.last().Holder, something, used, left)
			}
		}
		a.mustCharge(1)
		b.mustCharge(1)
		admitted := int64(2)
		for _, r := range []*till{a, b, a, b} {
			for ok := true; ok; {
				if ok, _ = r.charge(1); ok {
					admitted++
				}
			}
		}
		if admitted != 20 {
			t.Errorf("%d units of 20 admitted after it was cleared; account %+v", admitted, m.Account(key()))
		}
	})
}

// late answers after some time.
type late struct{ quota.Store }

func (l late) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	res, err := l.Store.Apply(ctx, op)
	time.Sleep(50 * time.Millisecond)
	return res, err
}

// P36: an operation that was under way when the account was cleared tells nothing of it.
func TestPurse_P36_AnAnswerFromBeforeTellsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		b := open(t, m, "b", terms(10))
		b.mustCharge(10)
		if ok, _ := b.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		a := open(t, m, "a", terms(10))
		a.store.use(late{m})
		a.lock.Lock()
		a.purse.Ask(1)
		a.lock.Unlock()
		time.Sleep(10 * time.Millisecond) // applied, and its answer is under way
		m.Clear(key())
		a.hear(voided(10, 1))
		time.Sleep(100 * time.Millisecond)
		if something, used, _ := a.look(); !something || used != 0 {
			t.Errorf("anything %v, used %d; want something and 0", something, used)
		}
		if ok, _ := a.charge(10); !ok {
			t.Errorf("refused; account %+v", m.Account(key()))
		}
	})
}

// P36: what replicas had used and not reported counts from the clearing on, once; what is
// given back of what was cleared is given back, and shows as nothing used.
func TestPurse_P36_UnreportedUseCountsAfterwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(100))
		r.mustCharge(5) // of a lease of 10; not reported
		if used := m.Clear(key()); used != 0 {
			t.Fatalf("cleared of %d, want 0", used)
		}
		r.hear(voided(100, 1))
		time.Sleep(time.Second)
		if a := m.Account(key()); a.Used() != 5 {
			t.Errorf("account %+v, want 5 used", a)
		}
		m.Clear(key())
		r.hear(voided(100, 2))
		r.lock.Lock()
		r.purse.Refund(r.at(), 5, 5)
		r.lock.Unlock()
		time.Sleep(2 * time.Minute)
		if a := m.Account(key()); a.Used() != -5 {
			t.Errorf("account %+v, want 5 given back", a)
		}
		if _, used, left := r.look(); used != 0 || left != 100 {
			t.Errorf("used %d, left %d; want 0 and 100", used, left)
		}
	})
}

// P36: under load and lost replies, with clearings at any moment, every unit that was
// admitted is counted or was cleared, and the rule holds at every moment.
func TestFleet_P36_A34_ClearedUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playClearing(t, seed, 300) })
		})
	}
}

func playClearing(t *testing.T, seed uint64, amount int64) {
	t.Helper()
	m := &storetest.Memory{}
	var broken atomic.Pointer[string]
	var admitted, cleared atomic.Int64
	var load sync.WaitGroup
	var tills []*till
	for i := range 3 {
		r := openWith(t, m, fmt.Sprint("r", i), terms(amount), time.Now)
		r.store.use(&flaky{
			Store: &watched{Store: m, memory: m, ceiling: amount, broken: &broken},
			rng:   rand.New(rand.NewPCG(seed, uint64(i)+2)),
		})
		tills = append(tills, r)
		own := rand.New(rand.NewPCG(seed, uint64(i)+100))
		load.Go(func() {
			for range 400 {
				n := 1 + own.Int64N(5)
				if ok, _ := r.charge(n); ok {
					admitted.Add(n)
				}
				time.Sleep(time.Duration(own.IntN(200)) * time.Millisecond)
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range int64(12) {
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
		cleared.Add(m.Clear(key()))
		for _, r := range tills {
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			r.hear(voided(amount, i+1))
		}
	}
	load.Wait()
	time.Sleep(3 * time.Minute) // idle purses close
	synctest.Wait()
	if s := broken.Load(); s != nil {
		t.Fatalf("the rule was broken: %s", *s)
	}
	a := m.Account(key())
	if got := a.Used() + cleared.Load(); got != admitted.Load() || a.Leased() != 0 {
		t.Fatalf("the account says used %d, leased %d, and %d were cleared; %d were admitted", a.Used(), a.Leased(), cleared.Load(), admitted.Load())
	}
	if cleared.Load() < amount {
		t.Errorf("cleared of %d units: too few to tell anything", cleared.Load())
	}
}
