package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// domainName is that of the descriptors, whose tenants the app decides.
const domainName = "counters"

// countersDocs are the documents of one domain: counters of which some run out at once, some
// during the run and some never, by value, by a value of their own and by two entries.
func countersDocs() []ruleDoc {
	return []ruleDoc{
		{domainName, domainName, "mete: {on_unavailable: deny}\n", []yearRule{{"small", "", 60, nil}, {"middle", "", 400, nil}}},
		{domainName, domainName + "/large", "", []yearRule{
			{"middle", "own", 1500, nil}, {"large", "", 10_000_000, []yearRule{{"route", "export", 200, nil}}},
		}},
	}
}

// countersPlans are of tenants that are asked for in the same requests.
func countersPlans() []planDoc {
	return []planDoc{{name: "mixed", amount: 300, tenants: tenantsOf("mixed", 2)}, {name: "roomy", amount: 10_000_000, tenants: tenantsOf("roomy", 2)}}
}

const countersApp = "{apiVersion: mete/v1, kind: App, metadata: {name: counters}, spec: {time_zone: UTC, " +
	"identity: {tenant: [{request_header: x-tenant}]}, envoy: {domain: " + domainName + "}}}"

// playCounters is everything at once for rate limit descriptors: what is admitted and not
// given back is what accounts of counters say, and they never hold more than their amount.
func playCounters(ctx context.Context, r *run) (figures string, err error) {
	docs := countersDocs()
	more := []clientv3.Op{clientv3.OpPut(store.DocumentKey(plan.KindApp, "counters"), countersApp)}
	for _, d := range docs {
		more = append(more, d.put("first", 100))
	}
	w, err := r.newWorld(ctx, "counters", worldConfig{
		members: 3, replicas: 3, plans: countersPlans(), more: more, args: []string{"--refusal-memory", "1s", "--unavailable-for", "1s"},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.counting(ctx); err != nil {
		return "", err
	}
	edits := &ruleEdits{world: w, docs: docs}
	f := &faults{world: w, edit: edits.next, seed: r.seed, pause: 1500 * time.Millisecond}
	c := &countCallers{world: w, patience: 2 * f.pause}
	if err := w.suffer(ctx, r.length, f, load{callers: 200, rate: 400, seed: r.seed, f: c.call}); err != nil {
		return f.String(), err
	}
	err = errors.Join(w.counting(ctx), c.elsewhere(ctx), w.settle(ctx))
	if err != nil {
		return f.String(), err
	}
	figures, err = w.judgeCounters(c, edits)
	return figures + "; " + f.String(), err
}

// counting waits until every replica counts the domain.
func (w *world) counting(ctx context.Context) error {
	for _, r := range w.replicas {
		if err := retry(ctx, 30*time.Second, r.name+" does not count", func(ctx context.Context) error {
			asks := []descriptor{counterOf(1, "large", "0")}
			a, err := w.truth.count(ctx, 500*time.Millisecond, r.face.Load(), asks)
			if err == nil && a != allowed {
				err = fmt.Errorf("the answer to %s is %d, want %d", asks[0].name, a, allowed)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// countCallers ask random replicas for random descriptors, and give some of it back.
type countCallers struct {
	world    *world
	patience time.Duration

	refunds, several, mixed atomic.Int64 // refusals of several descriptors, and of some with a tenant
	failed                  atomic.Pointer[error]
}

// call sends a request of one to three descriptors, and perhaps what came of it back.
func (c *countCallers) call(ctx context.Context, rng *rand.Rand) {
	within := c.patience // a process that stands still answers in the end
	if rng.IntN(50) == 0 {
		within = 100 * time.Millisecond // and some callers do not wait
	}
	f, asks := c.world.replicas[rng.IntN(len(c.world.replicas))].face.Load(), someDescriptors(rng)
	a, err := c.world.truth.count(ctx, within, f, asks)
	if err != nil {
		c.failed.CompareAndSwap(nil, &err)
	}
	last := asks[len(asks)-1]
	switch {
	case a == refused && len(asks) > 1:
		c.several.Add(1)
		if last.tenant() {
			c.mixed.Add(1)
		}
	case a == allowed && !asks[0].tenant() && rng.IntN(4) == 0:
		// Of what this very process has admitted: nothing can make it less than that.
		back := asks[0]
		back.hits = 1 + rng.Int64N(back.hits)
		c.giveBack(ctx, f, back)
	}
}

func (c *countCallers) giveBack(ctx context.Context, f *face, d descriptor) {
	a, err := c.world.truth.giveBack(ctx, c.patience, f, d)
	if err != nil {
		c.failed.CompareAndSwap(nil, &err)
	}
	if a == allowed {
		c.refunds.Add(1)
	}
}

// elsewhere gives units back to every replica that any of them has admitted.
func (c *countCallers) elsewhere(ctx context.Context) error {
	for _, r := range c.world.replicas {
		for i := range 4 {
			d := counterOf(1, "large", fmt.Sprint(i))
			if least, _ := c.world.truth.of(d.name).used(); least < 100 {
				return fmt.Errorf("void: %d units of %s were used, want 100", least, d.name)
			}
			c.giveBack(ctx, r.face.Load(), d)
		}
	}
	return nil
}

// someDescriptors returns one to three descriptors, in half of all requests with more than
// one a tenant as the last.
func someDescriptors(rng *rand.Rand) []descriptor {
	n := []int{1, 1, 2, 3}[rng.IntN(4)]
	asks := make([]descriptor, 0, n)
	for len(asks) < n {
		hits := []int64{1, 1, 1, 2, 3, 7}[rng.IntN(6)]
		one := fmt.Sprint(rng.IntN(4))
		switch rng.IntN(10) {
		case 0:
			asks = append(asks, counterOf(hits, "small", one))
		case 1:
			asks = append(asks, counterOf(hits, "middle", one))
		case 2:
			asks = append(asks, counterOf(hits, "middle", "own"))
		case 3:
			asks = append(asks, counterOf(hits, "large", one, "route", "export"))
		default:
			asks = append(asks, counterOf(hits, "large", one))
		}
	}
	if n > 1 && rng.IntN(2) == 0 {
		kind := []string{"mixed", "roomy", "roomy"}[rng.IntN(3)]
		asks[n-1] = tenantDescriptor(asks[n-1].hits, tenantsOf(kind, 2)[rng.IntN(2)])
	}
	return asks
}

// ruleEdits writes documents of a domain again, in turns: with other amounts, with a fault,
// or in other words. It waits until mete has said what it thinks of each.
type ruleEdits struct {
	world *world
	docs  []ruleDoc

	n, bad int
}

func (e *ruleEdits) next(ctx context.Context, rng *rand.Rand) error {
	d, share, note := e.docs[rng.IntN(len(e.docs))], int64(100), fmt.Sprint("edit ", e.n)
	kind := e.n % 3
	e.n++
	if kind == 0 {
		share = 80 + rng.Int64N(60)
	}
	verdict, put := store.EffectiveKey(plan.KindRateLimits, d.name), d.put(note, share)
	if kind == 1 {
		e.bad++
		verdict, put = store.StatusKey(plan.KindRateLimits, d.name), d.putBad(note)
	}
	if err := e.world.cluster.commit(ctx, put); err != nil {
		return err
	}
	return e.world.judged(ctx, store.DocumentKey(plan.KindRateLimits, d.name), verdict)
}

// judged waits until the newest revision of a document is in force, or rejected, by the
// record under the key verdict.
func (w *world) judged(ctx context.Context, document, verdict string) error {
	return retry(ctx, 20*time.Second, "no word of "+document, func(ctx context.Context) error {
		now, err := w.cluster.client.Get(ctx, document)
		if err != nil {
			return err
		}
		said, err := w.cluster.client.Get(ctx, verdict)
		if err != nil || len(now.Kvs) == 0 || len(said.Kvs) == 0 {
			return errors.Join(err, fmt.Errorf("%s is not there", verdict))
		}
		var record struct {
			InForce  int64 `json:"source_revision"`
			Rejected int64 `json:"revision"`
		}
		err = json.Unmarshal(said.Kvs[0].Value, &record)
		if want := now.Kvs[0].ModRevision; err == nil && want != max(record.InForce, record.Rejected) {
			err = fmt.Errorf("%s is of another revision than %d: %s", verdict, want, said.Kvs[0].Value)
		}
		return err
	})
}

func (w *world) judgeCounters(c *countCallers, edits *ruleEdits) (figures string, err error) {
	calls, err := readHistory(w.history())
	if err != nil {
		return "", err
	}
	found, proof, err := prove(w.books.all(), calls, w.dir)
	errs := []error{err, w.checkSums(found)}
	if failed := c.failed.Load(); failed != nil {
		errs = append(errs, *failed)
	}
	for _, e := range w.books.all() {
		if strings.HasPrefix(e.Key, store.EffectivePrefix) && strings.Contains(string(e.Value), badMark) {
			errs = append(errs, fmt.Errorf("revision %d: %s is a document that is not good: %s", e.Revision, e.Key, e.Value))
		}
	}
	counters, full := found.countersAtEnd()
	allowed, refused, unavailable, unanswered := w.truth.sum()
	figures = fmt.Sprintf("%s; %d counters, %d of them used up; units: %d allowed, %d refused, %d unavailable, %d unanswered; "+
		"%d refunds, %d refusals of several descriptors, %d of them with a tenant; %d bad edits",
		proof, counters, full, allowed, refused, unavailable, unanswered, c.refunds.Load(), c.several.Load(), c.mixed.Load(), edits.bad)
	if c.refunds.Load() == 0 || c.several.Load() == 0 || c.mixed.Load() == 0 || edits.bad == 0 || full == 0 || full == counters {
		errs = append(errs, errors.New("void: there must be some refunds, some of either refusal, a bad edit, and counters of which some are used up"))
	}
	return figures, errors.Join(errs...)
}

// countersAtEnd returns how many counters have an account, and of how many less is left than
// a request may ask for.
func (a *audit) countersAtEnd() (all, full int) {
	for key, account := range a.accounts {
		k, ok := store.ParseAccountKey(key)
		if !ok || k.Limit != limitPerYear {
			continue
		}
		all++
		if amount, _ := a.ceiling(k); account.Used() > amount-7 {
			full++
		}
	}
	return all, full
}
