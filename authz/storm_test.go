package authz_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A tally is what the callers of a storm know of each account.
type tally struct {
	mu   sync.Mutex
	used map[quota.Key]int64
}

func (y *tally) add(l *authz.LimitState) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.used[quota.Key{Tenant: l.Tenant, Limit: l.Limit.Name, Window: l.WindowID}] += l.Asked
}

// Two replicas, two apps, tenants that come and go, windows that end, edits, tenants
// that move, answers that nobody hears: in the end every account says what the
// callers know, nothing is out on lease, and no more than the amount was admitted.
func TestDecide_A34_A53_A59_C041_C096_Storm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { storm(t, seed) })
		})
	}
}

const (
	stormAmount = 2500
	stormUsers  = 6
)

func stormDocs() string {
	docs := treeDocs + `
---
apiVersion: mete/v1
kind: App
metadata: {name: other}
spec: {time_zone: UTC, identity: {tenant: [{request_header: x-tenant}]}}
` + planDoc("user", hourlyOf(stormAmount)) + tenantDoc("org:a", "{}") + tenantDoc("org:b", "{}")
	for i := range stormUsers {
		docs += tenantDoc(fmt.Sprint("user:", i), `{plan: user, parent: "org:a"}`)
	}
	return docs
}

func hourlyOf(amount int) string {
	return fmt.Sprint("hourly: {kind: quota, amount: ", amount, ", reset: {calendar: hour}, on_unavailable: deny}")
}

func storm(t *testing.T, seed uint64) {
	t.Helper()
	m, y := &storetest.Memory{}, &tally{used: map[quota.Key]int64{}}
	var load sync.WaitGroup
	desks := [2]*desk{}
	for i := range desks {
		desks[i] = newDeskOn(t, m, fmt.Sprint("r", i), stormDocs(), 1)
		desks[i].d.SetReplicas(2)
	}
	for i, k := range desks {
		for j := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			load.Go(func() { k.weather(rng, y) })
		}
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for range 60 {
		time.Sleep(time.Duration(rng.IntN(120)) * time.Second)
		edit := stormEdit(rng)
		for _, k := range desks { // at the same revision at both
			k.put(edit)
		}
		delay := time.Duration(rng.IntN(15)) * time.Millisecond
		if rng.IntN(6) == 0 {
			delay = time.Second // as good as away: the limit says deny
		}
		desks[rng.IntN(2)].store.slow(delay)
	}
	load.Wait()
	for _, k := range desks {
		k.store.slow(0)
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	var dropped int64
	for _, k := range desks {
		dropped += k.keeper.Stats().DroppedUnits
	}
	checkStorm(t, m, y, dropped)
}

// weather asks for an hour and a half, for two tenants at a time; the others rest.
func (k *desk) weather(rng *rand.Rand, y *tally) {
	for range 3000 {
		req := from(fmt.Sprint("user:", (time.Now().Unix()/20+rng.Int64N(2))%stormUsers))
		req.App = [...]string{"api", "other"}[rng.IntN(2)]
		req.Hits = 1 + rng.Int64N(3)
		req.Start = time.Now().Add(-time.Duration(rng.IntN(90)) * time.Second)
		dec := k.ask(req)
		switch {
		case !dec.Outcome.Admits():
		case rng.IntN(8) == 0:
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			k.d.GiveBack(time.Now(), dec)
		default:
			for i := range dec.Limits {
				y.add(&dec.Limits[i])
			}
		}
		if rng.IntN(50) == 0 {
			k.crowd(fmt.Sprint("passer", rng.IntN(1000)), 5)
		}
		time.Sleep(time.Duration(rng.IntN(3600)) * time.Millisecond)
	}
}

func stormEdit(rng *rand.Rand) string {
	switch rng.IntN(4) {
	case 0: // the limit goes
		return planDoc("user", "minutely: {kind: rate, amount: 1000, window: 1m}")
	case 1: // a tenant moves
		return tenantDoc(fmt.Sprint("user:", rng.IntN(stormUsers)), fmt.Sprintf(`{plan: user, parent: "org:%c"}`, 'a'+rng.IntN(2)))
	case 2: // only words
		return planDoc("user", hourlyOf(stormAmount)) + "  title: " + fmt.Sprint("t", rng.IntN(100)) + "\n"
	}
	return planDoc("user", hourlyOf(stormAmount-rng.IntN(50)))
}

// checkStorm finds in the accounts what the callers know, less what was dropped because
// the store was away for too long (A59).
func checkStorm(t *testing.T, m *storetest.Memory, y *tally, dropped int64) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	seen := 0
	for _, key := range m.Accounts() {
		a := m.Account(key)
		key.Root = ""
		seen++
		n := y.used[key]
		dropped -= n - a.Used()
		if a.Used() > n || n > stormAmount || a.Leased() != 0 {
			t.Errorf("%v: the callers know of %d, at most %d; the account says used %d, leased %d", key, n, stormAmount, a.Used(), a.Leased())
		}
		delete(y.used, key)
	}
	if dropped != 0 {
		t.Errorf("%d more units were dropped than the accounts lack", dropped)
	}
	for key, n := range y.used {
		if n != 0 && key.Limit == "hourly" {
			t.Errorf("%v: %d were charged and no account knows", key, n)
		}
	}
	if seen < 4 {
		t.Errorf("only %d accounts were used: this tests little", seen)
	}
}
