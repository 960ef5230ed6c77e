package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func TestRateLimitKeys_P70_SlashesStay(t *testing.T) {
	t.Parallel()
	for key, name := range map[string]string{
		"edge": "edge", "shop/eg/http": "shop/eg/http", "shop/eg/http/10-base.yaml": "shop/eg/http/10-base.yaml",
		"a%20b/c%25": "a b/c%", "a//b": "a//b", "/a": "/a", "Domain_1.x:y": "Domain_1.x:y", "\u00e9/x": "\u00e9/x",
		"": "", "a%2Fb": "", "a/b%2Fc": "", "a%2fb": "", "a%41": "", "a b": "", "a/%": "",
	} {
		kind, got, ok := store.ParseDocumentKey("/mete/v1/ratelimits/" + key)
		if ok != (name != "") || got != name || ok && kind != plan.KindRateLimits {
			t.Errorf("%s: got %s %q, %t; want %q", key, kind, got, ok, name)
		}
		if name == "" {
			continue
		}
		for prefix, got := range map[string]string{
			"/mete/v1/ratelimits/":           store.DocumentKey(plan.KindRateLimits, name),
			"/mete/v1/effective/ratelimits/": store.EffectiveKey(plan.KindRateLimits, name),
			"/mete/v1/status/ratelimits/":    store.StatusKey(plan.KindRateLimits, name),
		} {
			if got != prefix+key {
				t.Errorf("%q has the key %s, want %s", name, got, prefix+key)
			}
		}
	}
	if _, _, ok := store.ParseDocumentKey("/mete/v1/plans/a/b"); ok {
		t.Error("slashes stay in the names of plans, too")
	}
}

// Two names never share a key, and only the one way to write a key is a document.
func TestDocumentKeys_P70_AreOneToOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(store.Kinds()).Draw(t, "kind")
		name := "n" + anyString(t, "name")
		key := store.DocumentKey(kind, name)
		if k, got, ok := store.ParseDocumentKey(key); !ok || k != kind || got != name {
			t.Fatalf("%s %q became %s %q, %t by way of %q", kind, name, k, got, ok, key)
		}
		odd := store.DocumentPrefix(kind) + anyString(t, "key")
		if k, got, ok := store.ParseDocumentKey(odd); ok && store.DocumentKey(k, got) != odd {
			t.Fatalf("%q is %s %q, whose key is %q", odd, k, got, store.DocumentKey(k, got))
		}
	})
}

func limitsText(domain, value string, amount int) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n- {key: k, value: %s, rate_limit: {unit: day, requests_per_unit: %d}}\n", domain, value, amount)
}

// limitOf returns the limit of k=value in a domain; -1: there is none.
func limitOf(s *plan.Snapshot, domain, value string) int64 {
	d := s.Domain(domain)
	if d == nil || d.Table == nil {
		return -1
	}
	m, _ := d.Table.Match([]plan.DescriptorEntry{{Key: "k", Value: value}}, nil)
	if m == nil || m.Limit == nil {
		return -1
	}
	return m.Limit.Amount
}

func limits(domain, value string, n int64) func(*plan.Snapshot) bool {
	return func(s *plan.Snapshot) bool { return limitOf(s, domain, value) == n }
}

// P21, C001: what any client writes is in force in a moment; a bad edit leaves the old
// version in force, is told once for each revision, and stays rejected after a restart
// that knows no history.
func TestRateLimits_P21_C001_C016_ABadEditKeepsTheOld(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	const name = "shop/eg/http"
	put(t, c, "/mete/v1/ratelimits/"+name, limitsText(name, "a", 5))
	s := r.until("in force", limits(name, "a", 5))
	kv, err := c.Get(t.Context(), "/mete/v1/effective/ratelimits/"+name)
	if err != nil || len(kv.Kvs) != 1 || !strings.Contains(string(kv.Kvs[0].Value), `"feature_level": 4`) {
		t.Fatalf("effective %v, %v", kv, err)
	}
	want := plan.Guard{Kind: plan.KindRateLimits, Name: name, Revision: kv.Kvs[0].ModRevision}
	if d := s.Domain(name); len(d.Guards) != 1 || d.Guards[0] != want || d.Version != want.Revision {
		t.Errorf("domain %+v, want the guard %+v", d, want)
	}
	twice := limitsText(name, "a", 6) + "- {key: k, value: a, rate_limit: {unit: hour, requests_per_unit: 6}}\n"
	put(t, c, store.DocumentKey(plan.KindRateLimits, name), twice)
	put(t, c, store.DocumentKey(plan.KindRateLimits, "other"), limitsText("other", "a", 1))
	r.untilRejected(1)
	r.until("the other one", limits("other", "a", 1))
	if got := r.problem(); got != "4:3: shop/eg/http / k=a: is written twice at this level, first in line 3; keep one" {
		t.Errorf("problem %s", got)
	}
	r.untilStatuses(c, 1)
	if n := strings.Count(log.String(), "edit is rejected"); n != 1 || limitOf(r.Snapshot(), name, "a") != 5 {
		t.Errorf("logged %d times, and %d in force:\n%s", n, limitOf(r.Snapshot(), name, "a"), log.String())
	}
	put(t, c, store.DocumentKey(plan.KindRateLimits, name), twice+"# still\n")
	r.until("told once more", func(*plan.Snapshot) bool { return strings.Count(log.String(), "edit is rejected") == 2 })
	r.stop()
	if _, err := c.Compact(t.Context(), put(t, c, "/elsewhere", ""), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	r = startDocuments(t, c, zerolog.Nop())
	r.until("the old one after a restart", limits(name, "a", 5))
	r.untilRejected(1)
	put(t, c, store.DocumentKey(plan.KindRateLimits, name), limitsText(name, "a", 7))
	r.until("mended", limits(name, "a", 7))
	r.untilRejected(0)
	del(t, c, store.DocumentKey(plan.KindRateLimits, name))
	r.until("deleted", func(s *plan.Snapshot) bool {
		return s.Domain(name) == nil && limitOf(s, "other", "a") == 1 && get(t, c, store.EffectiveKey(plan.KindRateLimits, name)) == ""
	})
}

// C004: a domain whose only document was never valid is not without limits.
func TestRateLimits_C004_NeverValid(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindRateLimits, "edge"), "domain: edge\ndescriptors: [{key: k, ratelimit: {}}]\n")
	put(t, c, store.DocumentKey(plan.KindRateLimits, "shop/http"), limitsText("shop/https", "a", 1))
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	r.untilRejected(2)
	const want = "rate limits edge have never been valid: 2:24: edge / k: ratelimit: unknown field; did you mean rate_limit?"
	if d := r.Snapshot().Domain("edge"); d == nil || d.Broken != want {
		t.Errorf("domain %+v, want it broken by %s", d, want)
	}
	if d := r.Snapshot().Domain("shop/http"); d == nil || !strings.Contains(d.Broken, "holds RateLimits shop/https under the key of RateLimits shop/http") {
		t.Errorf("domain %+v", d)
	}
	// A key with an escaped slash is none, as "shop/http" has one already.
	put(t, c, "/mete/v1/ratelimits/shop%2Fhttp", limitsText("shop/http", "a", 1))
	put(t, c, store.DocumentKey(plan.KindRateLimits, "shop/http"), limitsText("shop/http", "b", 2))
	s := r.until("mended", limits("shop/http", "b", 2))
	if limitOf(s, "shop/http", "a") != -1 || strings.Count(log.String(), "key is not a document") != 1 {
		t.Errorf("the key that is none is in force, or not told of:\n%s", log.String())
	}
}

// P70, real files 17a and 17b: two documents of a domain are merged; of two that say the
// same rule the first by name is in force.
func TestRateLimits_P70_C001_TwoDocumentsOfADomain(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	if _, err := c.Txn(t.Context()).Then(
		clientv3.OpPut(store.DocumentKey(plan.KindRateLimits, "shared/b"), limitsText("shared", "red", 2)),
		clientv3.OpPut(store.DocumentKey(plan.KindRateLimits, "shared"), limitsText("shared", "red", 1)),
		clientv3.OpPut(store.DocumentKey(plan.KindRateLimits, "shared/green"), limitsText("shared", "green", 3)),
	).Commit(); err != nil {
		t.Fatal(err)
	}
	r := startDocuments(t, c, zerolog.Nop())
	s := r.until("what fits together", limits("shared", "green", 3))
	if limitOf(s, "shared", "red") != 1 || len(s.Domain("shared").Guards) != 2 {
		t.Errorf("red is limited to %d by %v", limitOf(s, "shared", "red"), s.Domain("shared").Guards)
	}
	const want = "3:3: shared / k=red: is in line 3 of rate limits shared already; keep one"
	if got := r.problem(); got != want || r.Rejected()[0].Name != "shared/b" {
		t.Errorf("%s: got %s, want %s", r.Rejected()[0].Name, got, want)
	}
	// Once in force, an edit that contradicts another document is rejected as well.
	put(t, c, store.DocumentKey(plan.KindRateLimits, "shared/green"), limitsText("shared", "red", 9))
	r.untilRejected(2)
	r.until("green as before", limits("shared", "green", 3))
	put(t, c, store.DocumentKey(plan.KindRateLimits, "shared/green"), limitsText("shared", "green", 4))
	// What was in the way goes, and the other comes by itself.
	del(t, c, store.DocumentKey(plan.KindRateLimits, "shared"))
	r.until("the other one", func(s *plan.Snapshot) bool {
		return limitOf(s, "shared", "red") == 2 && limitOf(s, "shared", "green") == 4
	})
	r.untilRejected(0)
}

// interposed does something before the transaction that puts a key.
type interposed struct {
	clientv3.KV

	key    string
	before func()
	once   sync.Once
}

func (i *interposed) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsTxn() {
		_, then, _ := op.Txn()
		for _, o := range then {
			if o.IsPut() && string(o.KeyBytes()) == i.key {
				i.once.Do(i.before)
			}
		}
	}
	return i.KV.Do(ctx, op)
}

// P70: two replicas that each put a document in force at the same time, neither having
// seen the other's, never put both in force if they contradict each other.
func TestRateLimits_P70_ReplicasThatPublishAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"red", "green"} {
		c := ownServer(t).Client()
		mine := clientv3.NewCtxClient(t.Context())
		mine.Watcher = c.Watcher
		b := store.EffectiveKey(plan.KindRateLimits, "shared/b")
		mine.KV = &interposed{KV: c.KV, key: store.EffectiveKey(plan.KindRateLimits, "shared"), before: func() {
			source := put(t, c, store.DocumentKey(plan.KindRateLimits, "shared/b"), limitsText("shared", value, 2))
			put(t, c, b, fmt.Sprintf(`{"source_revision": %d, "feature_level": 4, "document": %q}`, source, limitsText("shared", value, 2)))
		}}
		put(t, c, store.DocumentKey(plan.KindRateLimits, "shared"), limitsText("shared", "red", 1))
		r := startDocuments(t, mine, zerolog.Nop())
		r.until("that of the other replica", func(*plan.Snapshot) bool { return get(t, c, b) != "" })
		if value == "green" {
			r.until("both", func(s *plan.Snapshot) bool {
				return limitOf(s, "shared", "red") == 1 && limitOf(s, "shared", "green") == 2
			})
			continue
		}
		r.untilRejected(1)
		if got := r.problem(); got != "3:3: shared / k=red: is in line 3 of rate limits shared/b already; keep one" || limitOf(r.Snapshot(), "shared", "red") != 2 {
			t.Errorf("%d in force, and %s", limitOf(r.Snapshot(), "shared", "red"), got)
		}
		if get(t, c, store.EffectiveKey(plan.KindRateLimits, "shared")) != "" {
			t.Error("both are in force")
		}
	}
}

// S24: a replica of level 3 would let everything through.
func TestRateLimits_S24_WaitForTheLastReplicaThatCannotReadThem(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	putReplica(t, c, "old", `{"version": "1.9.0", "feature_level": 3}`)
	put(t, c, store.DocumentKey(plan.KindRateLimits, "edge"), "# x\n"+limitsText("edge", "a", 1))
	r := startDocuments(t, c, zerolog.Nop())
	r.untilRejected(1)
	if got := r.problem(); got != "2:9: domain: needs feature level 4; replica old (version 1.9.0) has 3: upgrade it first" {
		t.Errorf("got %s", got)
	}
	del(t, c, store.ReplicaKey("old"))
	r.until("in force", limits("edge", "a", 1))
	if level, _ := minimum(t, c); level != 4 {
		t.Errorf("minimum %d", level)
	}
}

// The longest document fits into one write of etcd whatever it holds, and so does what is
// wrong with it.
func TestRateLimits_P70_TheLongestDocument(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	filled := func(domain, filling string) string {
		text := limitsText(domain, "a", 1) + "# "
		return text + strings.Repeat(filling, (plan.MaxRateLimits-len(text))/len(filling))
	}
	for domain, filling := range map[string]string{"quotes": `"`, "slashes": `\`, "lines": "\n#", "tabs": "\t", "markup": "<&>", "separators": "\u2028"} {
		put(t, c, store.DocumentKey(plan.KindRateLimits, domain), filled(domain, filling))
		r.until(domain, limits(domain, "a", 1))
	}
	put(t, c, store.DocumentKey(plan.KindRateLimits, "long"), filled("long", "\n#")+"####")
	r.untilRejected(1)
	if got := r.problem(); !strings.Contains(got, "more than 716800; split it into several documents") {
		t.Errorf("got %s", got)
	}
	put(t, c, store.DocumentKey(plan.KindRateLimits, "long"), "domain: long\ndescriptors:\n"+strings.Repeat("- {ky: \"\"}\n", 20_000))
	var all []store.Rejection
	r.until("its status", func(*plan.Snapshot) bool {
		var err error
		all, err = store.Statuses(t.Context(), c)
		return err == nil && len(all) == 1 && len(all[0].Problems) > 1
	})
	last := all[0].Problems[len(all[0].Problems)-1].Message
	if len(all[0].Problems) != 100 || !strings.HasSuffix(last, "; and 19900 more problems, which metectl validate shows") {
		t.Errorf("%d problems, the last of which is %s", len(all[0].Problems), last)
	}
	time.Sleep(300 * time.Millisecond) // three times, the replica looks whether there is more to write
	if kv, err := c.Get(t.Context(), store.StatusKey(plan.KindRateLimits, "long")); err != nil || kv.Kvs[0].Version > 2 {
		t.Errorf("written again and again: %v", err)
	}
}

// Documents that are too long together for one write of etcd take several.
func TestApplyDocuments_P70_LongDocumentsTakeSeveralTransactions(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var changes []store.Change
	for i := range 5 {
		domain := fmt.Sprint("d", i)
		text := limitsText(domain, "a", 1)
		changes = append(changes, store.Change{Kind: plan.KindRateLimits, Name: domain, Text: []byte(text + strings.Repeat("#", plan.MaxRateLimits/2*(i%2+1)-len(text)))})
	}
	if _, err := store.ApplyDocuments(t.Context(), c, changes); err != nil {
		t.Fatal(err)
	}
	all, err := store.ListDocuments(t.Context(), c, plan.KindRateLimits)
	if err != nil || len(all) != 5 {
		t.Errorf("%d documents, %v", len(all), err)
	}
	changes[4].Text = []byte("x") // at a revision that it is not at
	_, err = store.ApplyDocuments(t.Context(), c, append([]store.Change{{Kind: plan.KindRateLimits, Name: "e", Text: changes[3].Text}}, changes[2:]...))
	var partial *store.PartialError
	if !asPartial(err, &partial) || partial.Applied != 1 || partial.Total != 4 {
		t.Errorf("got %v, want 1 of 4", err)
	}
}
