package authz_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// Two replicas, counters that come and go, several descriptors in a request and some of
// them twice, overrides, refunds, answers that nobody hears, windows that end, edits,
// domains that go and come back, an etcd that is away at times: in the end every account
// says what the callers know, nothing is out on lease, and no more than the amount was
// admitted.
func TestCount_P10_P13_A34_A59_C030_C051_Storm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { counterStorm(t, seed) })
		})
	}
}

const counterStormAmount = 400

// counterStormDoc is the domain; its settings and what else is in it change.
func counterStormDoc(rng *rand.Rand) string {
	rules := []string{
		limited("user", "hour", counterStormAmount-rng.IntN(40)), limited("org", "day", 5000), limited("passer", "hour", 2),
		limited("ip", "minute", 1+rng.IntN(100)), "{key: busy, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 300}}",
	}
	if rng.IntN(4) == 0 {
		rules = append(rules, limited(fmt.Sprint("more", rng.IntN(100)), "day", 1))
	}
	return edge("on_unavailable: deny, time_zone: Europe/Berlin", rules...)
}

func counterStorm(t *testing.T, seed uint64) {
	t.Helper()
	m, y := &storetest.Memory{}, &tally{used: map[quota.Key]int64{}}
	rng := rand.New(rand.NewPCG(seed, 99))
	doc := counterStormDoc(rng)
	var load sync.WaitGroup
	desks := [2]*desk{}
	for i := range desks {
		desks[i] = newDeskWith(t, m, fmt.Sprint("r", i), doc, authz.Config{MaxCounters: 60})
		desks[i].d.SetReplicas(2)
	}
	for i, k := range desks {
		for j := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			load.Go(func() { k.counterWeather(rng, y) })
		}
	}
	for range 60 {
		time.Sleep(time.Duration(rng.IntN(120)) * time.Second)
		doc, gone := counterStormDoc(rng), rng.IntN(6) == 0
		for _, k := range desks { // at the same revision at both
			if gone {
				k.remove(plan.KindRateLimits, "edge")
			} else {
				k.put(doc)
			}
		}
		delay := time.Duration(rng.IntN(15)) * time.Millisecond
		if rng.IntN(6) == 0 {
			delay = time.Second // as good as away: the domain says deny
		}
		desks[rng.IntN(2)].store.slow(delay)
		desks[rng.IntN(2)].d.SetReplicas(1 + rng.IntN(3))
	}
	load.Wait()
	dropped := int64(0)
	for _, k := range desks {
		k.store.slow(0)
		k.put(edge("", limited("user", "hour", 1)))
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	for _, k := range desks {
		dropped += k.keeper.Stats().DroppedUnits
	}
	checkCounterStorm(t, m, y, dropped)
}

func (k *desk) counterWeather(rng *rand.Rand, y *tally) {
	for range 3000 {
		texts := counterStormRequest(rng)
		k.stormCount(rng, y, texts)
		if rng.IntN(50) == 0 {
			for range 5 {
				k.stormCount(rng, y, []string{fmt.Sprint("passer=", rng.IntN(1000))})
			}
		}
		time.Sleep(time.Duration(rng.IntN(3600)) * time.Millisecond)
	}
}

func counterStormRequest(rng *rand.Rand) []string {
	user := fmt.Sprint("user=", (time.Now().Unix()/20+rng.Int64N(2))%4)
	all := []string{user, "org=a", user + " x3", user + " of 50/hour", "busy=1 x2", fmt.Sprint("ip=", rng.IntN(3))}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+rng.IntN(3)]
}

// stormCount counts one request, and tells y what it was charged.
func (k *desk) stormCount(rng *rand.Rand, y *tally, texts []string) {
	asks := make([]authz.DescriptorAsk, 0, len(texts))
	for _, text := range texts {
		asks = append(asks, askOf(text))
	}
	c := new(authz.Count)
	c.Reset()
	onlyLook := rng.IntN(10) == 0
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(20+rng.IntN(1000))*time.Millisecond)
	defer cancel()
	k.d.CountDescriptors(ctx, time.Now(), "edge", asks, onlyLook, c)
	if !c.Outcome.Admits() || onlyLook {
		return
	}
	if rng.IntN(8) == 0 {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		k.d.GiveBackCount(time.Now(), c)
		return
	}
	for i := range c.Items {
		it := &c.Items[i]
		if it.State.Limit == nil || it.State.Limit.Kind != plan.Quota || it.Shadowed || it.State.Shared {
			continue
		}
		key := quota.Key{Tenant: it.State.Tenant, Limit: stormAccount(&asks[i], it), Window: it.State.WindowID}
		y.note(key, asks[i].Hits)
		if rng.IntN(10) == 0 && asks[i].Hits > 0 {
			k.stormRefund(y, key, asks[i])
		}
	}
}

// stormRefund gives back at once what a descriptor took.
func (k *desk) stormRefund(y *tally, key quota.Key, ask authz.DescriptorAsk) {
	ask.Refund = true
	c := new(authz.Count)
	c.Reset()
	k.d.CountDescriptors(context.Background(), time.Now(), "edge", []authz.DescriptorAsk{ask}, false, c)
	if len(c.Items) == 1 && !c.Items[0].State.Shared && c.Items[0].State.WindowID == key.Window {
		y.note(key, -ask.Hits)
	}
}

func stormAccount(ask *authz.DescriptorAsk, it *authz.Counted) string {
	if ask.HasOverride {
		return ask.Override.Override()
	}
	return it.Match.Account
}

func (y *tally) note(key quota.Key, n int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.used[key] += n
}

func checkCounterStorm(t *testing.T, m *storetest.Memory, y *tally, dropped int64) {
	t.Helper()
	most := map[string]int64{"edge?user": counterStormAmount, "edge?org": 5000, "edge?passer": 2, "edge?busy": 1_000_000} // in shadow: etcd that is away stops nobody
	seen, full := 0, 0
	for _, key := range m.Accounts() {
		a := m.Account(key)
		n, kind := y.used[key], strings.Split(key.Tenant, "=")[0]
		amount := most[kind]
		if strings.HasSuffix(key.Limit, "=50") {
			amount = 50
		}
		dropped -= n - a.Used()
		if a.Used() > n || n > amount || a.Leased() != 0 {
			t.Errorf("%v: the callers know of %d, at most %d; the account says used %d, leased %d", key, n, amount, a.Used(), a.Leased())
		}
		if kind != "edge?passer" {
			seen++
			if n >= amount-40 {
				full++
			}
		}
		delete(y.used, key)
	}
	if dropped != 0 {
		t.Errorf("%d more units were dropped than the accounts lack", dropped)
	}
	for key, n := range y.used {
		if n != 0 {
			t.Errorf("%v: %d were charged and no account knows", key, n)
		}
	}
	if seen < 10 || full < 5 {
		t.Errorf("only %d accounts were used, and %d used up: this tests little", seen, full)
	}
}
