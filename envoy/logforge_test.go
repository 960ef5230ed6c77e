package envoy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/peers"
	"github.com/meteproject/mete/plan"
	metequota "github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

const forgeDocs = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: UTC, units: {tokens: {}}, identity: {tenant: [{request_header: x-tenant}]}, defaults: {plan: free}}
---
apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec: {limits: {tokens: {kind: quota, amount: 100000, unit: tokens, reset: {calendar: month}}}}
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec:
  app: api
  rules: [{name: chat, match: {path: /chat}, units: {tokens: {reserve: 100, use: [{response_header: x-usage}]}}}]
`

// A forge is everything between a log stream and the accounts, in memory.
type forge struct {
	t       *testing.T
	memory  *storetest.Memory
	decider *authz.Decider
	reader  *envoy.LogReader
}

func newForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{t: t, memory: &storetest.Memory{}}
	keeper := metequota.NewKeeper(metequota.KeeperConfig{Store: storetest.Unguarded(f.memory), Now: time.Now}, "r1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = keeper.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	f.decider = authz.New(authz.Config{Keeper: keeper, Now: time.Now, Process: 1})
	f.decider.SetSeals(authz.SealKey{ID: 1, Key: [16]byte{1}}, nil)
	catalog := plan.NewCatalog()
	docs, problems := plan.Decode("forge.yaml", []byte(forgeDocs))
	if plan.Refused(problems) {
		t.Fatal(problems)
	}
	for _, doc := range docs {
		catalog.Put(doc, 1)
	}
	f.decider.SetSnapshot(catalog.Snapshot())
	router := peers.New(peers.Config{Decider: f.decider, Process: 1, Now: time.Now})
	server := envoy.NewServer(envoy.Options{Decider: f.decider, Settler: router, Now: time.Now})
	t.Cleanup(server.Stop)
	f.reader = envoy.NewLogReader(server)
	return f
}

// token decides a request of a tenant and seals what it was charged.
func (f *forge) token(tenant string) string {
	f.t.Helper()
	req := authz.Request{Method: "POST", Path: "/chat", Headers: []authz.Field{{Name: "x-tenant", Value: tenant}}}
	dec := authz.Decision{Worst: -1}
	f.decider.Decide(context.Background(), time.Now(), &req, &dec)
	token := f.decider.Seal(nil, time.Now(), &dec, nil)
	if len(token) == 0 {
		f.t.Fatalf("%s: %q, nothing sealed", tenant, dec.Outcome.Word())
	}
	return string(token)
}

// entry is a log entry with a token, a status and a number of used units.
func (f *forge) entry(token string, status uint32, used string) []byte {
	e := typicalEntry(f.t)
	e.GetCommonProperties().Metadata = filterMetadata("envoy.filters.http.ext_authz", map[string]any{"outcome": "allowed", "reservation": token})
	e.GetResponse().ResponseCode = wrapperspb.UInt32(status)
	e.GetResponse().ResponseHeaders = map[string]string{"x-usage": used}
	e.GetResponse().ResponseTrailers = nil
	return mustMarshal(f.t, e)
}

// hear takes in one message with raw entries.
func (f *forge) hear(entries ...[]byte) {
	var logs []byte
	for _, e := range entries {
		logs = append(appendLen(append(logs, 1<<3|2), len(e)), e...)
	}
	f.raw(append(appendLen([]byte{2<<3 | 2}, len(logs)), logs...))
}

func (f *forge) raw(message []byte) { f.reader.Take(mem.SliceBuffer(message)) }

func appendLen(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// used returns what each tenant's account says.
func (f *forge) used() map[string]int64 {
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	all := map[string]int64{}
	for _, key := range f.memory.Accounts() {
		all[key.Tenant] += f.memory.Account(key).Used()
	}
	return all
}

// Whatever comes on a log stream - entries twice, cut off anywhere, with any bit turned, with
// a token that was altered or made up - nothing breaks, no request settles twice, no
// tenant is charged or given back anything by it that is not in a token of mete's own,
// and once all is settled nothing changes any more.
func TestLog_A26_A27_C090_C134_ForgedReplayedCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newForge(t)
		rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
		tokens := map[string]string{}
		for i := range 6 {
			tenant := fmt.Sprint("org:", i)
			tokens[tenant] = f.token(tenant)
		}
		f.token("org:idle") // never in any entry
		play := func() {
			for i := range 6 {
				tenant := fmt.Sprint("org:", i)
				e := f.entry(tokens[tenant], 200, fmt.Sprint(10*(i+1)))
				for range 200 { // one bit turned
					bad := append([]byte(nil), e...)
					bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
					f.hear(bad)
				}
				for cut := range e { // cut off
					f.hear(e[:cut])
				}
				forged := []byte(tokens[tenant])
				forged[len(forged)-3] ^= 1 // more units
				f.hear(f.entry(string(forged), 500, "0"), e, e, f.entry(tokens[tenant], 500, "0"))
				f.raw(e)
				f.hear(f.entry("00000001!AAAAAAAAAAAAAAAAAAAAAA!x", 500, "0"), f.entry("", 500, "0"))
			}
		}
		play()
		first := f.used()
		for tenant, n := range first {
			if n < 0 || n > 999_999_999_999_999 || tenant == "org:idle" && n != 100 {
				t.Errorf("%s has used %d", tenant, n)
			}
			if _, ours := tokens[tenant]; !ours && tenant != "org:idle" {
				t.Errorf("somebody made up %s", tenant)
			}
		}
		settled := f.decider.Stats()
		play()
		if again := f.used(); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("all once more: %v, before %v", again, first)
		}
		if got := f.decider.Stats(); settled.Unsettled != 1 || got.Unsettled != 1 {
			t.Errorf("%d, then %d reservations are open, want the one that nobody told of", settled.Unsettled, got.Unsettled)
		}
	})
}

// Entries as they should be settle to the unit, in whatever order and however often
// they come.
func TestLog_A26_C134_ExactlyOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newForge(t)
		rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test's
		var entries [][]byte
		want := map[string]int64{}
		for i := range 120 {
			tenant := fmt.Sprint("org:", i%5)
			status, used := uint32(200), rng.Int64N(250)
			if i%4 == 0 {
				status = 503
			} else {
				want[tenant] += used
			}
			entries = append(entries, f.entry(f.token(tenant), status, fmt.Sprint(used)))
		}
		entries = append(entries, entries...)
		rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		for len(entries) > 0 {
			n := 1 + rng.IntN(min(30, len(entries)))
			f.hear(entries[:n]...)
			entries = entries[n:]
		}
		if got := f.used(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("accounts say %v, want %v", got, want)
		}
	})
}
