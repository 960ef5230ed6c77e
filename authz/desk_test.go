package authz_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A desk is a Decider with everything behind it in memory. It is made in a
// synctest bubble, so that time is the test's.
type desk struct {
	t       *testing.T
	d       *authz.Decider
	keeper  *quota.Keeper
	store   *brakes
	memory  *storetest.Memory
	catalog *plan.Catalog
	rev     int64
	onUse   func(*authz.Use) // may be nil
	stop    func()           // ends the keeper, as at a stop of mete
}

// brakes slow a store down or stop it.
type brakes struct {
	quota.Store
	mu    sync.Mutex
	delay time.Duration
	calls int
	ops   []quota.Operation // since watch; nil: nobody watches
}

func (b *brakes) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	b.mu.Lock()
	b.calls++
	if b.ops != nil {
		b.ops = append(b.ops, op)
	}
	delay := b.delay
	b.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return quota.Result{}, ctx.Err()
		}
	}
	return b.Store.Apply(ctx, op)
}

func (b *brakes) slow(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay = d
}

// watch notes operations from now on, for watched.
func (b *brakes) watch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ops = make([]quota.Operation, 0, 16)
}

func (b *brakes) watched() []quota.Operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ops
}

func (b *brakes) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func newDesk(t *testing.T, docs string) *desk {
	t.Helper()
	return newDeskOn(t, &storetest.Memory{}, "r1", docs, 0)
}

func newDeskOn(t *testing.T, m *storetest.Memory, holder, docs string, maxTenants int) *desk {
	t.Helper()
	return newDeskWith(t, m, holder, docs, authz.Config{MaxTenants: maxTenants, Process: uint64(len(holder))<<32 | uint64(holder[len(holder)-1])})
}

// newDeskWith is newDesk on a store, with what cfg says beside.
func newDeskWith(t *testing.T, m *storetest.Memory, holder, docs string, cfg authz.Config) *desk {
	t.Helper()
	return newDeskOf(t, m, holder, docs, cfg, quota.KeeperConfig{})
}

// newDeskRationed is newDesk with so many new accounts a minute.
func newDeskRationed(t *testing.T, m *storetest.Memory, holder, docs string, accounts int) *desk {
	t.Helper()
	return newDeskOf(t, m, holder, docs, authz.Config{}, quota.KeeperConfig{NewAccounts: accounts})
}

func newDeskOf(t *testing.T, m *storetest.Memory, holder, docs string, cfg authz.Config, keeping quota.KeeperConfig) *desk {
	t.Helper()
	k := &desk{t: t, memory: m, store: &brakes{Store: m}, catalog: plan.NewCatalog()}
	keeping.Store, keeping.Now = k.store, time.Now
	k.keeper = quota.NewKeeper(keeping, holder)
	cfg.Keeper, cfg.Now = k.keeper, time.Now
	cfg.Used = func(u *authz.Use) {
		if k.onUse != nil {
			k.onUse(u)
		}
	}
	k.d = authz.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.keeper.Run(ctx) }()
	k.stop = func() { cancel(); <-done }
	t.Cleanup(k.stop)
	k.put(docs)
	return k
}

// put puts documents, separated by "---", in force.
func (k *desk) put(docs string) {
	k.t.Helper()
	decoded, problems := plan.Decode("test.yaml", []byte(docs))
	if plan.Refused(problems) {
		k.t.Fatalf("documents: %v", problems)
	}
	for _, doc := range decoded {
		k.rev++
		k.catalog.Put(doc, k.rev)
		k.memory.SetGuard(quota.Guard{Kind: string(doc.Kind), Name: doc.Name, Revision: k.rev})
	}
	k.publish()
}

func (k *desk) remove(kind plan.Kind, name string) {
	k.rev++
	k.catalog.Delete(kind, name, k.rev)
	k.memory.SetGuard(quota.Guard{Kind: string(kind), Name: name})
	k.publish()
}

func (k *desk) publish() { k.d.SetSnapshot(k.catalog.Snapshot()) }

// ask decides a request and returns the answer.
func (k *desk) ask(req authz.Request) *authz.Decision {
	dec := new(authz.Decision)
	dec.Reset()
	k.d.Decide(context.Background(), time.Now(), &req, dec)
	return dec
}

// from is a request of a tenant by the header that the test apps trust.
func from(tenant string) authz.Request {
	return authz.Request{Method: "GET", Path: "/", Headers: []authz.Field{{Name: "x-tenant", Value: tenant}}}
}

// must checks an outcome and returns the decision.
func (k *desk) must(req authz.Request, want authz.Outcome) *authz.Decision {
	k.t.Helper()
	dec := k.ask(req)
	if dec.Outcome != want {
		k.t.Fatalf("outcome %q (%s), want %q; limits %s", dec.Outcome.Word(), dec.Why, want.Word(), show(dec))
	}
	return dec
}

func show(dec *authz.Decision) string {
	var b strings.Builder
	for _, l := range dec.Limits {
		fmt.Fprintf(&b, "[%s/%s left %d used %d refused %v reset %v]", l.Tenant, l.Limit.Name, l.Left, l.Used, l.Refused, l.Reset)
	}
	return b.String()
}

// limit returns the state of a limit at the leaf.
func limit(t *testing.T, dec *authz.Decision, name string) authz.LimitState {
	t.Helper()
	for _, l := range dec.Limits {
		if l.Limit.Name == name && l.Leaf {
			return l
		}
	}
	t.Fatalf("no limit %s in %s", name, show(dec))
	return authz.LimitState{}
}

// app is an App that trusts x-tenant, with more of its spec.
func app(more string) string {
	return `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: Europe/Berlin
  identity: {tenant: [{request_header: x-tenant}]}
` + indent(more)
}

func planDoc(name, limits string) string {
	return "\n---\napiVersion: mete/v1\nkind: Plan\nmetadata: {name: " + name + "}\nspec:\n  limits:\n" + indent(indent(limits))
}

func tenantDoc(name, spec string) string {
	return "\n---\napiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"" + name + "\"}\nspec: " + spec + "\n"
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}

func credentialDoc(key, spec string) string {
	h := sha256.Sum256([]byte(key))
	return "\n---\napiVersion: mete/v1\nkind: Credential\nmetadata: {name: \"" + hex.EncodeToString(h[:]) + "\"}\nspec: " + spec + "\n"
}

// idleKeeper is a keeper that does nothing.
func idleKeeper() *quota.Keeper {
	return quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1")
}
