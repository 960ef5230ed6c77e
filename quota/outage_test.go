package quota_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A counterman serves one request a second and does what the limit says when the store
// is away.
type counterman struct {
	*till
	allow           bool
	served, refused int64
	waits           []time.Duration
}

func (c *counterman) serve() {
	const n = 1
	start := time.Now()
	deadline := time.After(c.purse.Wait())
	for patient := true; ; {
		c.lock.Lock()
		at := c.at()
		switch v := c.purse.Room(at, n); {
		case v == quota.Fits:
			c.purse.Charge(at, n)
			c.served += n
		case v == quota.Spent:
			c.refused += n
		case patient && c.purse.FailingFor(at) == 0:
			ready := c.purse.Await(n)
			c.lock.Unlock()
			select {
			case <-ready:
			case <-deadline:
				patient = false
			}
			continue
		default:
			if !patient {
				c.purse.GaveUp(at, time.Since(start))
			}
			c.purse.Ask(n)
			if c.allow && c.purse.LetsOn(at, n) {
				c.purse.LetOn(c.purse.Charge(at, n))
				c.served += n
			} else {
				c.refused += n
			}
		}
		c.lock.Unlock()
		if waited := time.Since(start); waited > 0 {
			c.waits = append(c.waits, waited)
		}
		return
	}
}

// The store is away for 15 minutes, one request a second: what is served, refused and
// dropped is exact, no request waits, and without a restart all goes on.
func TestOutage_A56_A57_A58_A59_A60_A61_P44_FifteenMinutes(t *testing.T) {
	t.Parallel()
	const minutes = 15 * 60
	for _, c := range []struct {
		name                     string
		allow                    bool
		limit                    quota.Cap
		served, refused, dropped int64
	}{
		// A lease of 10 units, of which one is used before. Too old is what was used
		// in the first 5 min, before and after, up to the end of that slice of 10 s.
		{"allow", true, quota.Cap{}, minutes, 0, 310},
		{"deny", false, quota.Cap{}, 9, minutes - 9, 10},
		{"up to 100 units", true, quota.Cap{Units: 100}, 9 + 100, minutes - 109, 110},
		{"for 12 minutes", true, quota.Cap{For: 12 * time.Minute}, 9 + 12*60, minutes - 9 - 12*60, 310},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tm := terms(1_000_000)
				tm.Cap = c.limit
				m := &storetest.Memory{}
				r := &counterman{till: open(t, m, "a", tm), allow: c.allow}
				r.serve()
				time.Sleep(time.Second)
				r.store.set(time.Hour, nil) // silent
				before, waited := r.served, len(r.waits)
				for range minutes {
					r.serve()
					time.Sleep(time.Second)
				}
				served := r.served - before
				if served != c.served || r.refused != c.refused {
					t.Errorf("%d served and %d refused, want %d and %d", served, r.refused, c.served, c.refused)
				}
				// The renewal at 70 % finds out behind the requests' back.
				if w := r.waits[waited:]; len(w) != 0 {
					t.Errorf("requests waited %v, want none", w)
				}
				r.store.set(0, nil)
				time.Sleep(time.Second)
				refused := r.refused
				r.serve()
				if r.refused != refused {
					t.Error("refused once the store was back")
				}
				time.Sleep(time.Minute)
				if d := r.keeper.Stats().DroppedUnits; d != c.dropped {
					t.Errorf("%d dropped, want %d", d, c.dropped)
				}
				if used := m.Account(key()).Used(); used != r.served-c.dropped {
					t.Errorf("the account says %d used, want %d served less %d dropped", used, r.served, c.dropped)
				}
			})
		})
	}
}

// The first request of a customer finds the store silent: it waits 300 ms, the
// others not at all (A19, A61).
func TestOutage_A56_A61_LongestWaitIsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &counterman{till: open(t, &storetest.Memory{}, "a", terms(1000)), allow: true}
		r.store.set(time.Hour, nil)
		for range 15 * 60 {
			r.serve()
			time.Sleep(time.Second)
		}
		if len(r.waits) != 1 || r.waits[0] != 300*time.Millisecond || r.served != 900 {
			t.Errorf("requests waited %v and %d were served, want one of 300ms and 900", r.waits, r.served)
		}
	})
}

// What is held for less than 10 minutes is reported in full (A58), with an operation of
// unknown outcome that was applied, too.
func TestOutage_A58_A59_LostReplyBeforeALongOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		applied bool
		dropped int64
	}{
		{"the last report was applied", true, 5},
		{"the last report was lost", false, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tm := terms(1_000_000)
				tm.Rule.First = 100
				m := &storetest.Memory{}
				r := open(t, m, "a", tm)
				r.mustCharge(10)
				if c.applied {
					r.store.use(storetest.LostReply(m, 1))
				} else {
					r.store.set(0, errors.New("away"))
				}
				time.Sleep(45 * time.Second) // the report goes out, or does not
				r.store.set(time.Hour, errors.New("away"))
				r.mustCharge(5)
				time.Sleep(11 * time.Minute)
				r.lock.Lock()
				r.purse.LetOn(r.purse.Charge(r.at(), 7))
				r.lock.Unlock()
				r.store.use(m)
				r.store.set(0, nil)
				time.Sleep(time.Minute)
				if d := r.keeper.Stats().DroppedUnits; d != c.dropped {
					t.Errorf("%d dropped, want %d", d, c.dropped)
				}
				if used := m.Account(key()).Used(); used != 22-c.dropped {
					t.Errorf("the account says %d used, want %d", used, 22-c.dropped)
				}
			})
		})
	}
}

// What was let on is reported as soon as the store answers, not with the next renewal.
func TestOutage_A58_ReportedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := &counterman{till: open(t, m, "a", terms(1000)), allow: true}
		r.store.set(time.Hour, nil)
		for range 30 {
			r.serve()
			time.Sleep(time.Second)
		}
		r.store.set(0, nil)
		time.Sleep(2 * time.Second)
		if used := m.Account(key()).Used(); used != 30 {
			t.Errorf("%d counted 2 s after the outage, want 30", used)
		}
	})
}

// What was let on while the store was away is overshoot only as far as it passes the
// quota.
func TestOvershoot_A49_C24_C25_CountedWhenItIsReal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := &counterman{till: open(t, m, "a", terms(100)), allow: true}
		r.mustCharge(1)
		r.store.set(0, errors.New("away"))
		for range 80 {
			r.serve()
		}
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		if n := r.keeper.Stats().Overshoot[quota.UnavailableStore]; n != 0 {
			t.Errorf("%d past the quota, want none: 81 of 100 are used", n)
		}
		r.store.set(0, errors.New("away"))
		for range 60 {
			r.serve()
		}
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		used := m.Account(key()).Used()
		if n := r.keeper.Stats().Overshoot[quota.UnavailableStore]; used != 141 || n != 41 {
			t.Errorf("%d used and %d counted as past the quota, want 141 and 41", used, n)
		}
	})
}

// A lease of before a change is spent from while a replica does not hear of it: what
// that takes past the quota is counted as such.
func TestOvershoot_A44_CutOffFromAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1000)
		tm.Rule.First = 100
		r := open(t, m, "a", tm)
		r.mustCharge(1)
		r.store.set(0, errors.New("away")) // and the amount is lowered to 50
		r.mustCharge(70)
		time.Sleep(46 * time.Second) // its report fails
		r.mustCharge(10)
		lowered := terms(50)
		r.lock.Lock()
		r.purse.SetTerms(r.at(), lowered)
		r.lock.Unlock()
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		if n := r.keeper.Stats().Overshoot[quota.TermsChange]; n != 10 {
			t.Errorf("%d units counted for the change of terms, want the 10 since the store went away", n)
		}
	})
}

// What is used between a report of which nobody knows the end and the change is
// suspected for as long as the doubt lasts, and not only in the last seconds.
func TestOvershoot_A44_InDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1000)
		tm.Rule.First = 100
		r := open(t, m, "a", tm)
		r.mustCharge(60)
		r.store.set(0, errors.New("away")) // and the amount is lowered to 50
		time.Sleep(46 * time.Second)       // its report fails: nobody knows whether it arrived
		r.mustCharge(10)
		time.Sleep(11 * time.Second) // longer than demand is remembered
		r.lock.Lock()
		r.purse.SetTerms(r.at(), terms(50))
		r.lock.Unlock()
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		if n := r.keeper.Stats().Overshoot[quota.TermsChange]; n != 10 || m.Account(key()).Used() != 70 {
			t.Errorf("%d units counted for the change of terms of %d used, want 10 of 70", n, m.Account(key()).Used())
		}
	})
}

// What was used while the limit only counted passed no quota, though it is more than the
// amount that the limit gets.
func TestOvershoot_A44_UnlimitedToLimitedPassesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		counting := terms(1000)
		counting.Counts = true
		r := open(t, m, "a", counting)
		r.mustCharge(70)
		r.lock.Lock()
		r.purse.SetTerms(r.at(), terms(50))
		r.lock.Unlock()
		time.Sleep(time.Minute)
		if n := r.keeper.Stats().Overshoot[quota.TermsChange]; n != 0 || m.Account(key()).Used() != 70 {
			t.Errorf("%d units counted for the change of terms of %d used, want none of 70", n, m.Account(key()).Used())
		}
	})
}

// After a restore of the store no lease is asked for while others may spend what the
// store has forgotten; use is reported.
func TestKeeper_P43_LearnsAfterARestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(1000))
		r.mustCharge(3)
		r.keeper.Learn(time.Minute)
		r.keeper.SetHolder("a2")
		if ok, waited := r.charge(1); ok || waited > 0 {
			t.Errorf("admitted %v after %v, want decided at once without a lease", ok, waited)
		}
		time.Sleep(59 * time.Second)
		if a := m.Account(key()); a.Used() != 3 {
			t.Errorf("%d reported meanwhile, want 3", a.Used())
		}
		time.Sleep(2 * time.Second)
		r.mustCharge(1)
	})
}
