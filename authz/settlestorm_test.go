package authz_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// Requests that end in every way, in any order, at any of three replicas, some told
// twice, some never, over windows that end: the accounts say what was used, to the
// unit, and nothing stays on lease. Usage events say the same.
func TestSettle_A26_A27_A40_A42_Q49_C134_C135_Storm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { settleStorm(t, seed) })
		})
	}
}

const settleStormDocs = `
- name: chat
  match: {path: /chat}
  units: {tokens: {reserve: 40, use: [{response_header: x-usage}]}}
- name: most
  match: {path: /most}
  units: {tokens: {reserve: 40, max: 40, use: [{response_header: x-usage}]}}
- {name: heavy, match: {path: /heavy}, weight: 5}
`

// A running request of the storm.
type running struct {
	token string
	r     authz.Reservation
}

func settleStorm(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &storetest.Memory{}
	under := seed%2 == 0 // whether requests may use more than they reserve
	docs := app("units: {tokens: {title: tokens}}") +
		planDoc("free", "hourly: {kind: quota, amount: 300, reset: {calendar: hour}}\ntokens: {kind: quota, amount: 4000, unit: tokens, reset: {calendar: hour}}") +
		tenantDoc("org:a", "{plan: free}") + tenantDoc("org:b", "{plan: free}") + routesDoc(settleStormDocs)
	var desks []*desk
	for i := range 3 {
		desks = append(desks, newDeskWith(t, m, fmt.Sprint("r", i), docs, authz.Config{Process: uint64(i + 1)}).seals())
	}
	told := map[quota.Key]int64{}
	for _, k := range desks {
		k.onUse = func(u *authz.Use) { told[quota.Key{Tenant: u.Tenant, Limit: u.Limit, Window: u.Window}] += u.Units }
	}
	want := map[quota.Key]int64{}
	count := func(r *authz.Reservation, i int, n int64) {
		want[quota.Key{Tenant: r.Charges[i].Node, Limit: r.Charges[i].Limit, Window: r.Charges[i].Window}] += n
	}
	var open []running
	for range 600 {
		if rng.IntN(3) > 0 || len(open) == 0 {
			open = askAny(rng, desks, open, count)
		} else {
			open = endAny(rng, desks, open, count, under)
		}
		if rng.IntN(8) == 0 {
			time.Sleep(time.Duration(rng.IntN(120)) * time.Second)
		}
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	for _, key := range m.Accounts() {
		a := m.Account(key)
		key.Root = ""
		if a.Used() != want[key] || told[key] != want[key] {
			t.Errorf("%v: the account says %d, events %d, want %d", key, a.Used(), told[key], want[key])
		}
		if a.Leased() != 0 {
			t.Errorf("%v: %d units are on lease", key, a.Leased())
		}
		amount := map[string]int64{"hourly": 300, "tokens": 4000}[key.Limit]
		if !under && a.Used() > amount { // A42
			t.Errorf("%v: %d of %d are used", key, a.Used(), amount)
		}
	}
}

// askAny sends a request to one of the replicas.
func askAny(rng *rand.Rand, desks []*desk, open []running, count func(*authz.Reservation, int, int64)) []running {
	k := desks[rng.IntN(len(desks))]
	req := at([]string{"/", "/chat", "/most", "/heavy"}[rng.IntN(4)])
	req.Headers[0].Value = []string{"org:a", "org:b"}[rng.IntN(2)]
	dec := k.ask(req)
	if !dec.Outcome.Admits() {
		return open
	}
	one := running{token: k.token(dec)}
	if rng.IntN(10) == 0 {
		k.d.GiveBack(time.Now(), dec)
		return open
	}
	if bad := k.d.Open(one.token, &one.r); bad != 0 {
		k.t.Fatal(bad.Word())
	}
	for i := range one.r.Charges {
		count(&one.r, i, one.r.Charges[i].Units)
	}
	return append(open, one)
}

// endAny ends a request: at the replica that decided, as long as it is there, or for one
// that is gone at its heir.
func endAny(rng *rand.Rand, desks []*desk, open []running, count func(*authz.Reservation, int, int64), under bool) []running {
	i := rng.IntN(len(open))
	one := open[i]
	open[i] = open[len(open)-1]
	open = open[:len(open)-1]
	if rng.IntN(8) == 0 {
		return open // nobody ever tells
	}
	k := desks[one.r.Replica-1]
	if one.r.Replica == 3 {
		k = desks[0] // 3 counts as gone
	}
	most := 40
	if under {
		most = 90
	}
	n := rng.IntN(most + 1)
	e := tells([]int{200, 200, 500}[rng.IntN(3)], "x-usage", fmt.Sprint(n))
	for range 1 + rng.IntN(2) {
		k.end(one.token, e)
	}
	for j := range one.r.Charges {
		c := &one.r.Charges[j]
		switch {
		case e.Status == 500:
			count(&one.r, j, -c.Units)
		case c.Limit == "tokens":
			count(&one.r, j, int64(n)-c.Units)
		}
	}
	return open
}
