package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/meteproject/mete/quota"
)

// A Subject is a store under test, and what tests need to do behind its back.
type Subject struct {
	Store quota.Store
	// Account reads an account past the store.
	Account func(quota.Key) quota.Account
	// SetLiable makes a holder liable, or not.
	SetLiable func(holder string, liable bool)
	// Edit changes the guarded document so that its revision rises, and
	// returns the guard that now holds.
	Edit func(kind, name string) quota.Guard

	run string // makes names of its own
}

// Run checks that the stores that fresh makes keep the contract of [quota.Store].
// No holder is liable in a fresh store until it is made so. Tests use names of
// their own, so that fresh stores may share one database.
func Run(t *testing.T, fresh func(*testing.T) Subject) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"grant, report and close", testSequence},
		{"a repeated operation changes nothing and gives the same answer", testReplay},
		{"an operation without a sequence only asks", testQuestion},
		{"a changed guard is ErrStale", testStale},
		{"a guard of revision 0 wants no document", testAbsent},
		{"reports pass under stale guards", testReportUnderStaleGuards},
		{"a repeat is answered under stale guards", testReplayUnderStaleGuards},
		{"a holder that is not liable is ErrGone", testGone},
		{"a holder that is gone is answered what was seen and counts nothing twice", testGoneReplay},
		{"gone holders are folded", testFold},
		{"liable holders are not folded", testNoFold},
		{"a refusal writes nothing", testRefusal},
		{"accounts do not share a key", testKeys},
		{"the ceiling holds under concurrency", testCeiling},
		{"conflicts are retried", testConflicts},
		{"an ended context is no answer", testEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fresh(t)
			s.run = rand.Text()
			c.test(t, s)
		})
	}
}

func (s Subject) key(t *testing.T) quota.Key {
	t.Helper()
	return quota.Key{Root: "org", Tenant: s.name(t, "tenant"), Limit: "monthly", Window: "2026-11"}
}

func (s Subject) ask(t *testing.T, holder string, seq uint64, want int64) quota.Operation {
	t.Helper()
	return quota.Operation{
		Key: s.key(t), App: "shop", Holder: holder, Seq: seq,
		Want: want, Min: 1, Ceiling: 100, Replicas: 1, Version: 7,
	}
}

func apply(t *testing.T, s Subject, op quota.Operation) quota.Result {
	t.Helper()
	r, err := s.Store.Apply(t.Context(), op)
	if err != nil {
		t.Fatalf("apply %+v: %v", op, err)
	}
	return r
}

// want compares what a result says of the account; testQuestion has the rest.
func want(t *testing.T, got, want quota.Result) {
	t.Helper()
	got.Seq, got.Own, want.Seq, want.Own = 0, 0, 0, 0
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func testSequence(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, true)
	want(t, apply(t, s, s.ask(t, a, 1, 10)), quota.Result{Granted: 10, Left: 90, Leased: 10})

	op := s.ask(t, a, 2, 20)
	op.Used, op.Hold = 7, []quota.Lease{{ID: 1, Units: 3}}
	want(t, apply(t, s, op), quota.Result{Granted: 20, Left: 70, Used: 7, Leased: 23})

	op = s.ask(t, a, 3, 0)
	op.Used = 9
	want(t, apply(t, s, op), quota.Result{Left: 91, Used: 9})
	if got := s.Account(s.key(t)); got.Used() != 9 || got.Leased() != 0 {
		t.Errorf("stored %+v, want 9 used and none leased", got)
	}
}

func testReplay(t *testing.T, s Subject) {
	a, b := s.name(t, "a"), s.name(t, "b")
	s.SetLiable(a, true)
	s.SetLiable(b, true)
	op := s.ask(t, a, 1, 10)
	first := apply(t, s, op)
	stored := s.Account(s.key(t))
	want(t, apply(t, s, op), first)
	if got := s.Account(s.key(t)); !reflect.DeepEqual(got, stored) {
		t.Errorf("repeat changed %+v to %+v", stored, got)
	}
	apply(t, s, s.ask(t, b, 1, 10))
	if got := apply(t, s, op); got.Granted != first.Granted {
		t.Errorf("after another holder's grant: granted %d, want %d", got.Granted, first.Granted)
	}
}

func testQuestion(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, false)
	op := s.ask(t, a, 0, 10)
	op.Guards = []quota.Guard{{Kind: "Plan", Name: s.name(t, "pro"), Revision: 1}}
	if got := apply(t, s, op); got != (quota.Result{Left: 100}) {
		t.Errorf("of an unused account: %+v, want 100 left", got)
	}
	s.SetLiable(a, true)
	report := s.ask(t, a, 3, 0)
	report.Used = 4
	apply(t, s, report)
	s.SetLiable(a, false)
	if got := apply(t, s, op); got != (quota.Result{Left: 96, Used: 4, Seq: 3, Own: 4}) {
		t.Errorf("after a report: %+v, want sequence 3 and 4 used", got)
	}
}

func testStale(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, true)
	op := s.ask(t, a, 1, 10)
	op.Guards = []quota.Guard{s.Edit("Plan", s.name(t, "pro")), s.Edit("Tenant", s.name(t, "acme"))}
	s.Edit("Tenant", s.name(t, "acme"))
	op.Used = 3
	if _, err := s.Store.Apply(t.Context(), op); !errors.Is(err, quota.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
	if got := s.Account(s.key(t)); len(got.Holders) > 0 {
		t.Errorf("was applied: %+v", got)
	}
	op.Guards[1] = s.Edit("Tenant", s.name(t, "acme"))
	want(t, apply(t, s, op), quota.Result{Granted: 10, Left: 87, Used: 3, Leased: 10})
}

func testAbsent(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, true)
	op := s.ask(t, a, 1, 10)
	op.Guards = []quota.Guard{{Kind: "Tenant", Name: s.name(t, "unknown")}}
	apply(t, s, op)
	s.Edit("Tenant", s.name(t, "unknown"))
	op.Seq = 2
	if _, err := s.Store.Apply(t.Context(), op); !errors.Is(err, quota.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
}

func testReportUnderStaleGuards(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, true)
	apply(t, s, s.ask(t, a, 1, 10))
	op := s.ask(t, a, 2, 0)
	op.Used, op.Guards = 4, []quota.Guard{{Kind: "Plan", Name: s.name(t, "pro"), Revision: 1}}
	want(t, apply(t, s, op), quota.Result{Left: 96, Used: 4})
}

func testReplayUnderStaleGuards(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, true)
	op := s.ask(t, a, 1, 10)
	op.Guards = []quota.Guard{s.Edit("Plan", s.name(t, "pro"))}
	first := apply(t, s, op)
	s.Edit("Plan", s.name(t, "pro"))
	want(t, apply(t, s, op), first)
}

func testGone(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, false)
	if _, err := s.Store.Apply(t.Context(), s.ask(t, a, 1, 10)); !errors.Is(err, quota.ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	op := s.ask(t, a, 1, 0)
	op.Used = 2
	if _, err := s.Store.Apply(t.Context(), op); !errors.Is(err, quota.ErrGone) {
		t.Errorf("a report: got %v, want ErrGone", err)
	}
	if got := s.Account(s.key(t)); len(got.Holders) > 0 || got.Base != 0 {
		t.Errorf("was applied: %+v", got)
	}
}

// testGoneReplay: what the account has seen is answered though the holder is gone,
// and once it is folded away nothing that it repeats counts again.
func testGoneReplay(t *testing.T, s Subject) {
	a, b := s.name(t, "a"), s.name(t, "b")
	s.SetLiable(a, true)
	s.SetLiable(b, true)
	op := s.ask(t, a, 1, 0)
	op.Used = 5
	apply(t, s, op)
	s.SetLiable(a, false)
	want(t, apply(t, s, op), quota.Result{Left: 95, Used: 5})
	apply(t, s, s.ask(t, b, 1, 10)) // folds a
	if _, err := s.Store.Apply(t.Context(), op); !errors.Is(err, quota.ErrGone) {
		t.Errorf("a folded holder's repeat: got %v, want ErrGone", err)
	}
	if got := s.Account(s.key(t)); got.Used() != 5 {
		t.Errorf("stored %+v, want 5 used", got)
	}
}

func testFold(t *testing.T, s Subject) {
	a, b := s.name(t, "a"), s.name(t, "b")
	s.SetLiable(a, true)
	s.SetLiable(b, true)
	apply(t, s, s.ask(t, a, 1, 40))
	op := s.ask(t, a, 2, 0)
	op.Used, op.Hold = 5, []quota.Lease{{ID: 1, Units: 35}}
	apply(t, s, op)
	s.SetLiable(a, false)
	// The lease of a is back, what it used is not.
	want(t, apply(t, s, s.ask(t, b, 1, 10)), quota.Result{Granted: 10, Left: 85, Used: 5, Leased: 10})
	got := s.Account(s.key(t))
	if got.Base != 5 || len(got.Holders) != 1 {
		t.Errorf("stored %+v, want base 5 and b alone", got)
	}
}

func testNoFold(t *testing.T, s Subject) {
	a, b := s.name(t, "a"), s.name(t, "b")
	s.SetLiable(a, true)
	s.SetLiable(b, true)
	apply(t, s, s.ask(t, a, 1, 40))
	want(t, apply(t, s, s.ask(t, b, 1, 10)), quota.Result{Granted: 10, Left: 50, Leased: 50})
}

func testRefusal(t *testing.T, s Subject) {
	a, b := s.name(t, "a"), s.name(t, "b")
	s.SetLiable(a, true)
	s.SetLiable(b, true)
	op := s.ask(t, a, 1, 0)
	op.Used = 100
	apply(t, s, op)
	stored := s.Account(s.key(t))
	want(t, apply(t, s, s.ask(t, b, 1, 10)), quota.Result{Used: 100})
	if got := s.Account(s.key(t)); !reflect.DeepEqual(got, stored) {
		t.Errorf("a refusal changed %+v to %+v", stored, got)
	}
}

func testKeys(t *testing.T, s Subject) {
	a := s.name(t, "a")
	s.SetLiable(a, true)
	tenant := s.name(t, "tenant")
	for i, k := range []quota.Key{
		{Tenant: tenant + "/x", Limit: "y", Window: "z"},
		{Tenant: tenant, Limit: "x/y", Window: "z"},
		{Tenant: tenant, Limit: "x", Window: "y/z"},
		{Tenant: tenant + "%2Fx", Limit: "y", Window: "z"},
		{Tenant: tenant + "\xff", Limit: "y", Window: "z"},
		{Tenant: tenant + "\ufffd", Limit: "y", Window: "z"},
		{Tenant: tenant, Limit: "", Window: "z"},
		{Tenant: tenant, Limit: "z", Window: ""},
	} {
		op := s.ask(t, a, 1, 10)
		op.Key = k
		if got := apply(t, s, op); got.Left != 90 {
			t.Errorf("account %d, %q: %d left, want 90", i, k, got.Left)
		}
	}
}

// testCeiling lets holders take, spend and give back as they like.
func testCeiling(t *testing.T, s Subject) {
	const holders, rounds = 6, 30
	var wg sync.WaitGroup
	used := make([]int64, holders)
	for h := range holders {
		id := s.name(t, fmt.Sprint("h", h))
		s.SetLiable(id, true)
		wg.Go(func() {
			for seq := uint64(1); seq <= rounds; seq++ {
				op := s.ask(t, id, seq, 10)
				op.Used = used[h]
				r, err := s.Store.Apply(t.Context(), op)
				if err != nil {
					t.Errorf("holder %d: %v", h, err)
					return
				}
				if r.Left < 0 || r.Used+r.Leased > op.Ceiling {
					t.Errorf("holder %d, operation %d: %+v passes the ceiling %d", h, seq, r, op.Ceiling)
				}
				if seq%3 == 0 { // spend a part, return the rest
					used[h] += r.Granted / 2
				}
			}
			op := s.ask(t, id, rounds+1, 0)
			op.Used = used[h]
			if _, err := s.Store.Apply(t.Context(), op); err != nil {
				t.Errorf("close holder %d: %v", h, err)
			}
		})
	}
	wg.Wait()
	var sum int64
	for _, u := range used {
		sum += u
	}
	if got := s.Account(s.key(t)); got.Used() != sum || got.Leased() != 0 {
		t.Errorf("stored %d used and %d leased, want %d and 0", got.Used(), got.Leased(), sum)
	}
}

func testConflicts(t *testing.T, s Subject) {
	const holders = 12
	var wg sync.WaitGroup
	for h := range holders {
		id := s.name(t, fmt.Sprint("h", h))
		s.SetLiable(id, true)
		wg.Go(func() {
			op := s.ask(t, id, 1, 1)
			if r, err := s.Store.Apply(t.Context(), op); err != nil || r.Granted != 1 {
				t.Errorf("holder %d: %+v, %v; want a unit", h, r, err)
			}
		})
	}
	wg.Wait()
	if got := s.Account(s.key(t)); got.Leased() != holders {
		t.Errorf("%d leased, want %d", got.Leased(), holders)
	}
}

func testEnded(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Store.Apply(ctx, s.ask(t, s.name(t, "a"), 1, 10))
	if err == nil || errors.Is(err, quota.ErrStale) || errors.Is(err, quota.ErrGone) || errors.Is(err, quota.ErrNotApplied) {
		t.Errorf("got %v, want an error that leaves the outcome open", err)
	}
}

// name makes a name that no other test has on the same database, nor this one when
// it runs again.
func (s Subject) name(t *testing.T, what string) string {
	t.Helper()
	return t.Name() + "-" + s.run + "-" + what
}
