package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

const (
	floodApp    = "flood"
	floodDomain = domainName
	floodAmount = 5 // of a tenant with a document
	floodPaying = 20
	// floodRSS is what a mete that is flooded may keep in memory of its own, with its etcd.
	floodRSS = 600 << 20
	// floodLeft is how much more than before the flood it may keep a while after it.
	floodLeft = 100 << 20
)

// Documents of the flood: names without a document have the quota of defaults.plan, which
// lets on where it has no lease, and so have those with one.
const (
	floodAppText = "{apiVersion: mete/v1, kind: App, metadata: {name: flood}, spec: {time_zone: UTC, defaults: {plan: visitor}, " +
		"identity: {tenant: [{api_key: x-api-key}, {request_header: x-tenant}]}}}"
	floodPlanText = "{apiVersion: mete/v1, kind: Plan, metadata: {name: %s}, spec: {limits: {" +
		"per_second: {kind: rate, amount: 1000, window: 1s}, yearly: {kind: quota, amount: %d, on_unavailable: allow, reset: {calendar: year}}}}}"
	floodRules = "domain: counters\ndescriptors: [{key: ip, rate_limit: {unit: hour, requests_per_unit: 100}}]\n"
)

func floodDocuments() []clientv3.Op {
	ops := []clientv3.Op{
		clientv3.OpPut(store.DocumentKey(plan.KindApp, floodApp), floodAppText),
		clientv3.OpPut(store.DocumentKey(plan.KindPlan, "visitor"), fmt.Sprintf(floodPlanText, "visitor", 100)),
		clientv3.OpPut(store.DocumentKey(plan.KindPlan, "paying"), fmt.Sprintf(floodPlanText, "paying", floodAmount)),
		clientv3.OpPut(store.DocumentKey(plan.KindRateLimits, floodDomain), floodRules),
	}
	for _, t := range tenantsOf("paying", floodPaying) {
		ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindTenant, t),
			fmt.Sprintf("{apiVersion: mete/v1, kind: Tenant, metadata: {name: %q}, spec: {plan: paying}}", t)))
	}
	return ops
}

// A flooded world is a lone mete that is asked for names that nobody has declared, while
// tenants with documents ask, too.
type flooded struct {
	*world
	one *replica

	names, accounts  int64 // bounds
	paying, admitted atomic.Int64
	made             atomic.Int64 // names
	minutes          int64        // begun since the flood began
	before           float64      // RssAnon
	peak             float64
	most             map[string]int64 // of the gauges
}

// playFlood makes up API keys, tenants and addresses as fast as the machine carries, then
// rests: what is kept in memory and in etcd is bounded while it lasts and gone a while after
// it, and no tenant with a document gets more than its quota.
func playFlood(ctx context.Context, r *run) (figures string, err error) {
	f := &flooded{names: 1000, accounts: 3000, most: map[string]int64{}}
	each := 5 * time.Second
	args := []string{"--max-tenants", fmt.Sprint(f.names), "--max-counters", fmt.Sprint(f.names), "--max-new-accounts", fmt.Sprint(f.accounts)}
	if r.long { // the defaults, and 108,000 tenants
		args, f.names, f.accounts, each = nil, 1_000_000, 10_000, time.Minute
	}
	if f.world, err = r.newLoneWorld(ctx, "flood", args...); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.one = f.replicas[0]
	if err := errors.Join(f.cluster.commit(ctx, floodDocuments()...), f.useUp(ctx)); err != nil {
		return "", err
	}
	if f.before, err = f.rss(); err != nil {
		return "", err
	}
	began := time.Now()
	for _, kind := range []string{"key", "tenant", "ip"} {
		if err := f.flood(ctx, r, kind, each); err != nil {
			return f.String(), err
		}
	}
	f.minutes = int64(time.Since(began)/time.Minute) + 2
	err = f.judge(ctx)
	return f.String(), errors.Join(err, f.rest(ctx))
}

func (f *flooded) String() string {
	return fmt.Sprintf("%d made-up names beside %d requests of tenants with documents, %d past their quotas; at most %d tenants, %d counters, %d purses and %.0f MB (%.0f MB before)",
		f.made.Load(), f.paying.Load(), f.past(), f.most["mete_cached_tenants"], f.most["mete_cached_counters"], f.most["mete_purses"], f.peak/1e6, f.before/1e6)
}

// past returns what tenants with documents were let have past their quotas.
func (f *flooded) past() int64 { return max(0, f.admitted.Load()-floodPaying*floodAmount) }

// useUp has all tenants with documents use up what they have.
func (f *flooded) useUp(ctx context.Context) error {
	for _, t := range tenantsOf("paying", floodPaying) {
		if err := retry(ctx, 30*time.Second, "the quota of "+t+" is not used up", func(ctx context.Context) error {
			for range floodAmount + 1 {
				if f.ask(ctx, "x-tenant", t) == refused {
					return nil
				}
			}
			return errors.New("it is let on")
		}); err != nil {
			return err
		}
	}
	f.admitted.Store(floodPaying * floodAmount)
	return nil
}

// flood makes up names of a kind for so long.
func (f *flooded) flood(ctx context.Context, r *run, kind string, d time.Duration) error {
	some, done := context.WithTimeout(ctx, d)
	defer done()
	made := load{callers: 48, seed: r.seed, f: func(ctx context.Context, _ *rand.Rand) { f.makeUp(ctx, kind) }}
	paying := load{callers: 4, rate: 40, seed: r.seed, f: func(ctx context.Context, rng *rand.Rand) {
		f.paying.Add(1)
		if f.ask(ctx, "x-tenant", fmt.Sprint("org:paying-", rng.IntN(floodPaying))) == allowed {
			f.admitted.Add(1)
		}
	}}
	var all errgroup.Group
	all.Go(func() error { return f.watch(some) })
	all.Go(func() error { paying.run(some); return nil })
	made.run(some)
	return errors.Join(all.Wait(), ctx.Err())
}

// makeUp sends a request of a name that nobody has sent before.
func (f *flooded) makeUp(ctx context.Context, kind string) {
	n := f.made.Add(1)
	switch kind {
	case "key":
		f.ask(ctx, "x-api-key", fmt.Sprint("made-up-", n))
	case "tenant":
		f.ask(ctx, "x-tenant", fmt.Sprint("made-up:", n))
	default:
		asks := []descriptor{{name: "ip", entries: []string{"ip", fmt.Sprint("10.", n>>16&255, ".", n>>8&255, ".", n&255)}, hits: 1}}
		_, _ = f.one.face.Load().count(ctx, askFor, asks, false) // what it is told is no matter
	}
}

// ask sends a request to the flooded app with a header that says who asks.
func (f *flooded) ask(ctx context.Context, header, who string) answer {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	r, err := f.one.face.Load().client.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		ContextExtensions: map[string]string{"mete-app": floodApp},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: http.MethodGet, Path: "/", Headers: map[string]string{header: who},
		}},
	}})
	switch denied := r.GetDeniedResponse(); {
	case err != nil:
		return unanswered
	case denied == nil:
		return allowed
	case denied.GetStatus().GetCode() == http.StatusTooManyRequests:
		return refused
	}
	return unavailable
}

// watch notes the most that is kept until ctx is done.
func (f *flooded) watch(ctx context.Context) error {
	for sleep(ctx, 500*time.Millisecond) == nil {
		if err := f.look(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (f *flooded) look(ctx context.Context) error {
	for _, name := range []string{"mete_cached_tenants", "mete_cached_counters", "mete_purses"} {
		n, err := f.one.metric(ctx, name)
		if err != nil {
			return err
		}
		f.most[name] = max(f.most[name], n)
	}
	rss, err := f.rss()
	f.peak = max(f.peak, rss)
	return err
}

// judge checks what was kept and let on while the flood lasted.
func (f *flooded) judge(ctx context.Context) error {
	var errs []error
	bound := func(what string, n, most int64) {
		if n > most {
			errs = append(errs, fmt.Errorf("%s: %d, want at most %d", what, n, most))
		}
	}
	bound("tenants kept", f.most["mete_cached_tenants"], f.names+floodPaying+1)
	bound("counters kept", f.most["mete_cached_counters"], f.names)
	bound("bytes of memory", int64(f.peak), floodRSS)
	accounts, err := f.madeUpAccounts(ctx)
	bound("accounts of made-up names", accounts, f.accounts*f.minutes)
	// A quota is never open: what a machine that carries no more lets on is each time one
	// request that waited in vain.
	bound("requests of tenants with documents past their quotas", f.past(), f.paying.Load()/50+floodPaying)
	shared, sharedErr := f.one.metric(ctx, "mete_shared_requests_total")
	if shared == 0 && f.made.Load() > 4*f.names {
		errs = append(errs, errors.New("no name shared a slot: this tests little"))
	}
	return errors.Join(append(errs, err, sharedErr)...)
}

// madeUpAccounts counts the accounts of names without a document.
func (f *flooded) madeUpAccounts(ctx context.Context) (n int64, err error) {
	used, err := f.cluster.used(ctx)
	for name := range used {
		if strings.Contains(name, "made-up") || strings.Contains(name, "ip=") {
			n++
		}
	}
	return n, err
}

// rest waits until what the flood left in memory is gone.
func (f *flooded) rest(ctx context.Context) error {
	return retry(ctx, 100*time.Second, "the flood is over and its names are kept", func(ctx context.Context) error {
		var errs []error
		for name, most := range map[string]int64{"mete_cached_tenants": floodPaying + 10, "mete_cached_counters": 10, "mete_purses": floodPaying + 10} {
			if n, err := f.one.metric(ctx, name); err != nil || n > most {
				errs = append(errs, fmt.Errorf("%s is %d, want at most %d: %w", name, n, most, err))
			}
		}
		if rss, err := f.rss(); err != nil || rss > f.before+floodLeft {
			errs = append(errs, fmt.Errorf("%.0f MB of memory, want at most %.0f: %w", rss/1e6, (f.before+floodLeft)/1e6, err))
		}
		return errors.Join(errs...)
	})
}

// rss returns the bytes of memory that are mete's own; 0 where the system does not tell.
func (f *flooded) rss() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.one.mete.Pid()))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return n * 1024, err
		}
	}
	return 0, err
}
