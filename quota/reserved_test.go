package quota_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// Reservations count for 16 to 32 minutes, and releasing one that is forgotten, or was
// never made, takes nothing from the others.
func TestReserved_A41_Generations(t *testing.T) {
	t.Parallel()
	p := quota.NewKeeper(quota.KeeperConfig{Now: time.Now}, "a").NewLocal(key(), quota.Window{}, &quota.Terms{Ceiling: 1000})
	at := func(minute int64) quota.Instant {
		return quota.Instant{Mono: minute * int64(time.Minute), Wall: minute * int64(time.Minute)}
	}
	began := func(minute int64) int64 { return minute * int64(time.Minute) }
	p.Reserve(at(1), began(1), 100, true)
	p.Reserve(at(17), began(17), 10, false)
	for _, c := range []struct{ minute, units, measured int64 }{{17, 110, 100}, {31, 110, 100}, {32, 10, 0}, {47, 10, 0}, {48, 0, 0}, {500, 0, 0}} {
		units := p.Reserved(at(c.minute))
		if measured, _ := p.Returning(at(c.minute)); units != c.units || measured != c.measured {
			t.Errorf("in minute %d: %d, %d measured, want %d, %d", c.minute, units, measured, c.units, c.measured)
		}
	}
	p.Reserve(at(501), began(501), 7, true)
	p.Release(at(502), began(1), 100, true)
	p.Release(at(502), began(501), 5, true)
	if got := p.Reserved(at(502)); got != 2 {
		t.Errorf("%d are reserved, want 2", got)
	}
	p.Release(at(502), began(501), 5, true)
	if got := p.Reserved(at(502)); got != 0 {
		t.Errorf("%d are reserved, want 0", got)
	}
	if units, since := p.Returning(at(503)); units != 0 || since != 2*time.Minute {
		t.Errorf("%d, %s", units, since)
	}
}

// What a holder has reserved is part of what it used, and is gone with it.
func TestApply_A41_Reserved(t *testing.T) {
	t.Parallel()
	a, _ := quota.Apply(quota.Account{}, quota.Operation{Holder: "a", Seq: 1, Used: 9, Reserved: 4, Ceiling: 100})
	a, _ = quota.Apply(a, quota.Operation{Holder: "b", Seq: 1, Used: 5, Reserved: 5, Ceiling: 100})
	if a.Used() != 14 || a.Reserved() != 9 {
		t.Errorf("%+v", a)
	}
	again, _ := quota.Apply(a, quota.Operation{Holder: "b", Seq: 1, Used: 5, Reserved: 1, Ceiling: 100})
	if again.Reserved() != 9 {
		t.Errorf("a repeat changed %d", again.Reserved())
	}
	a, _ = quota.Apply(a, quota.Operation{Holder: "a", Seq: 2, Used: 9, Ceiling: 100, Gone: []string{"b"}})
	if a.Used() != 14 || a.Reserved() != 0 {
		t.Errorf("%+v", a)
	}
}

// A purse is not forgotten while its account says that requests run: what is closed, with
// the request over or not, says before that none does.
func TestClose_A41_SaysThatNothingRuns(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]bool{"the request is over": true, "it runs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &storetest.Memory{}
				r := open(t, m, "a", terms(1000))
				r.mustCharge(10)
				began := time.Now().UnixNano()
				r.lock.Lock()
				r.purse.Reserve(r.at(), began, 10, true)
				r.lock.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := m.Account(key()).Reserved(); got != 10 {
					t.Fatalf("%d are reserved while it runs", got)
				}
				r.lock.Lock()
				if over {
					r.purse.Release(r.at(), began, 10, true)
				}
				r.purse.Close()
				if r.keeper.Forget(r.purse) {
					t.Error("forgotten too early")
				}
				r.lock.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				if a := m.Account(key()); a.Used() != 10 || a.Reserved() != 0 {
					t.Errorf("%d of %d are reserved of what is closed", a.Reserved(), a.Used())
				}
				r.lock.Lock()
				defer r.lock.Unlock()
				if !r.purse.Gone() {
					t.Error("not forgotten")
				}
			})
		})
	}
}
