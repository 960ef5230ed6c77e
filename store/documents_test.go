package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func appText(name, zone string) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: App\nmetadata: {name: %s}\nspec:\n  time_zone: %s\n  identity:\n    tenant: [{request_header: x-tenant}]\n", name, zone)
}

func planText(name string, amount int) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: Plan\nmetadata: {name: %s}\nspec:\n  limits:\n    monthly: {kind: quota, amount: %d, reset: {calendar: month}}\n", name, amount)
}

func tenantText(name, onPlan, parent string) string {
	s := fmt.Sprintf("apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: %q}\nspec:\n  plan: %s\n", name, onPlan)
	if parent != "" {
		s += fmt.Sprintf("  parent: %q\n", parent)
	}
	return s
}

// A replica is a running Documents, and what it handed out.
type replica struct {
	*store.Documents
	t      *testing.T
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	resets int
	snaps  []*plan.Snapshot
}

func startDocuments(t *testing.T, c *clientv3.Client, log zerolog.Logger) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{Documents: store.NewDocuments(c), t: t, cancel: cancel}
	r.Log, r.Progress, r.Silence = log, 100*time.Millisecond, 2*time.Second
	r.OnReset = func() { r.mu.Lock(); defer r.mu.Unlock(); r.resets++ }
	r.OnSnapshot = func(s *plan.Snapshot) { r.mu.Lock(); defer r.mu.Unlock(); r.snaps = append(r.snaps, s) }
	r.done.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(r.stop)
	return r
}

func (r *replica) stop() { r.cancel(); r.done.Wait() }

// until waits for a condition on the current snapshot.
func (r *replica) until(what string, ok func(*plan.Snapshot) bool) *plan.Snapshot {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if s := r.Snapshot(); s != nil && ok(s) {
			return s
		}
	}
	r.t.Fatalf("not within 5 s: %s; rejected: %+v", what, r.Rejected())
	return nil
}

func (r *replica) untilRejected(n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d rejected documents", n), func(*plan.Snapshot) bool { return len(r.Rejected()) == n })
}

// amount returns what a plan allows, 0 if there is none.
func amount(s *plan.Snapshot, name string) int64 {
	if p := s.Plan(name); p != nil {
		return p.Limits[0].Amount
	}
	return 0
}

func hasAmount(name string, n int64) func(*plan.Snapshot) bool {
	return func(s *plan.Snapshot) bool { return amount(s, name) == n }
}

func TestDocumentsAreEnforcedAsTheyAreWritten(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	revision := put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 100))
	put(t, c, store.DocumentKey(plan.KindTenant, "acme"), tenantText("acme", "free", ""))
	s := r.until("tenant on a plan", func(s *plan.Snapshot) bool {
		terms := s.Terms(time.Now(), "shop", "acme")
		return terms.Broken == "" && len(terms.Nodes) == 1
	})
	var e struct {
		SourceRevision int64 `json:"source_revision"`
		Document       string
	}
	if err := json.Unmarshal([]byte(get(t, c, store.EffectiveKey(plan.KindPlan, "free"))), &e); err != nil || e.SourceRevision != revision || e.Document != planText("free", 100) {
		t.Errorf("effective: %+v, %v", e, err)
	}
	// Guards name what is in etcd.
	for _, g := range s.Terms(time.Now(), "shop", "acme").Nodes[0].Guards {
		key := store.DocumentKey(g.Kind, g.Name)
		if g.Kind == plan.KindPlan || g.Kind == plan.KindApp {
			key = store.EffectiveKey(g.Kind, g.Name)
		}
		kv, err := c.Get(t.Context(), key)
		if err != nil || len(kv.Kvs) == 0 || kv.Kvs[0].ModRevision != g.Revision {
			t.Errorf("guard %+v: %v, %v", g, kv, err)
		}
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 200)+"\n# a comment\n")
	r.until("edit", hasAmount("free", 200))
	if st := r.Stats(); !st.Up || st.Contact.IsZero() || st.Revision == 0 || st.ApplyDelay <= 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestAPlanAndItsAppMayNeedEachOther(t *testing.T) {
	c := ownServer(t).Client()
	app := appText("shop", "UTC") + "    classes: [{name: bots, when: {credential_prefix: [b_]}}, {name: people}]\n  defaults: {plan: free}\n"
	free := strings.Replace(planText("free", 100), "amount", "classes: [bots], amount", 1)
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), free)
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), app)
	r := startDocuments(t, c, zerolog.Nop())
	r.until("both", func(s *plan.Snapshot) bool { return s.App("shop") != nil && s.Plan("free") != nil })
	if got := r.Rejected(); len(got) > 0 {
		t.Errorf("rejected: %+v", got)
	}
}

func TestATenantWaitsForItsPlanAndParent(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindTenant, "a"), tenantText("a", "free", "z"))
	put(t, c, store.DocumentKey(plan.KindTenant, "z"), tenantText("z", "free", ""))
	r.untilRejected(2)
	if terms := r.Snapshot().Terms(time.Now(), "shop", "a"); terms.Broken == "" {
		t.Errorf("a tenant without a valid document has terms %+v", terms)
	}
	r.until("status", func(*plan.Snapshot) bool { return get(t, c, store.StatusKey(plan.KindTenant, "z")) != "" })
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	r.untilRejected(0)
	r.until("no status", func(*plan.Snapshot) bool {
		return get(t, c, store.StatusKey(plan.KindTenant, "a")) == "" && get(t, c, store.StatusKey(plan.KindTenant, "z")) == ""
	})
	if terms := r.Snapshot().Terms(time.Now(), "shop", "a"); terms.Broken != "" || len(terms.Nodes) != 2 {
		t.Errorf("terms %+v", terms)
	}
}

// broken returns twenty and more kinds of broken document.
func broken(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../plan/testdata/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"cut off": `{"limit":`, "empty": "", "spaces": strings.Repeat(" ", 1<<20), "renamed": planText("other", 1),
		"a number": "17", "not UTF-8": "apiVersion: mete/v1\xff", "two": planText("p", 1) + "---\n" + planText("p", 2),
		"negative": planText("p", -1), "another kind": appText("p", "UTC"), "a tab": "\tapiVersion: mete/v1",
		"deep": strings.Repeat("[", 10000), "null": "null", "newer": strings.Replace(planText("p", 1), "mete/v1", "mete/v9", 1),
		"unknown field": planText("p", 1) + "  colour: red\n",
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(text)
	}
	if len(all) < 20 {
		t.Fatalf("%d kinds of broken document, want 20", len(all))
	}
	return all
}

// C016, and features: 20 kinds of broken document change no decision; a restart
// keeps the last good one.
func TestBrokenDocumentsChangeNothing(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	bad := broken(t)
	i := 0
	plans := map[string]string{}
	for what := range bad {
		name := fmt.Sprint("p", i)
		i++
		plans[what] = name
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 1000+i))
		put(t, c, store.DocumentKey(plan.KindTenant, "t"+name), tenantText("t"+name, name, ""))
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "good"), planText("good", 1))
	before := r.until("all good", func(s *plan.Snapshot) bool {
		return len(s.Names(plan.KindPlan)) == len(bad)+1 && len(r.Rejected()) == 0 && s.Tenant("tp0") != nil
	})
	for what, text := range bad {
		put(t, c, store.DocumentKey(plan.KindPlan, plans[what]), strings.ReplaceAll(text, "name: p}", "name: "+plans[what]+"}"))
		put(t, c, store.DocumentKey(plan.KindTenant, "t"+plans[what]), text)
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "good"), planText("good", 2))
	put(t, c, store.DocumentKey(plan.KindPlan, "never"), "{")
	put(t, c, store.DocumentKey(plan.KindTenant, "tnever"), tenantText("tnever", "never", ""))

	check := func(r *replica) {
		t.Helper()
		s := r.until("the good edit", hasAmount("good", 2))
		r.untilRejected(2*len(bad) + 1)
		s = r.Snapshot()
		for what, name := range plans {
			if got, want := amount(s, name), amount(before, name); got != want {
				t.Errorf("%s: plan %s allows %d, want %d", what, name, got, want)
			}
			terms := s.Terms(time.Now(), "shop", "t"+name)
			if terms.Broken != "" || len(terms.Nodes) != 1 || terms.Nodes[0].Plan != name {
				t.Errorf("%s: terms of t%s are %+v", what, name, terms)
			}
		}
		if terms := s.Terms(time.Now(), "shop", "tnever"); terms.Broken == "" {
			t.Errorf("a plan that was never valid gives %+v", terms)
		}
	}
	check(r)
	r.until("statuses", func(*plan.Snapshot) bool {
		all, err := store.Statuses(t.Context(), c)
		return err == nil && len(all) == 2*len(bad)+1
	})
	all, _ := store.Statuses(t.Context(), c)
	for _, st := range all {
		if len(st.Problems) == 0 || st.Problems[0].Message == "" || st.Revision == 0 || st.Since.IsZero() {
			t.Errorf("status %+v", st)
		}
	}
	r.stop()
	// History alone must not be what a restart lives on.
	now, err := c.Get(t.Context(), store.EpochKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	r = startDocuments(t, c, zerolog.Nop())
	check(r)
	// A statement of the offline reader.
	catalog, _, err := store.LoadCatalog(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range plans {
		if got, want := amount(catalog.Snapshot(), name), amount(before, name); got != want {
			t.Errorf("offline: plan %s allows %d, want %d", name, got, want)
		}
	}
	// Mending ends it.
	for _, name := range plans {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 7))
		put(t, c, store.DocumentKey(plan.KindTenant, "t"+name), tenantText("t"+name, name, ""))
	}
	r.untilRejected(1)
	r.until("one status", func(*plan.Snapshot) bool {
		all, err := store.Statuses(t.Context(), c)
		return err == nil && len(all) == 1
	})
	r.until("no text kept of tenants", func(*plan.Snapshot) bool {
		kept, err := c.Get(t.Context(), store.EffectivePrefix+"tenants/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && kept.Count == 0
	})
}

// A tenant whose edit was bad while nobody watched is found in history.
func TestATenantSpoiledBeforeAStartIsFoundInHistory(t *testing.T) {
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	put(t, c, store.DocumentKey(plan.KindTenant, "acme"), tenantText("acme", "free", ""))
	put(t, c, store.DocumentKey(plan.KindTenant, "acme"), "{")
	put(t, c, store.DocumentKey(plan.KindTenant, "acme"), "[")
	r := startDocuments(t, c, zerolog.Nop())
	r.untilRejected(1)
	if terms := r.Snapshot().Terms(time.Now(), "shop", "acme"); terms.Broken != "" || len(terms.Nodes) != 1 {
		t.Errorf("terms %+v", terms)
	}
}

func TestDeletionOfWhatIsInUseIsRejected(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	put(t, c, store.DocumentKey(plan.KindTenant, "org"), tenantText("org", "free", ""))
	put(t, c, store.DocumentKey(plan.KindTenant, "user"), tenantText("user", "free", "org"))
	r.until("tenants", func(s *plan.Snapshot) bool { return s.Tenant("user") != nil && len(r.Rejected()) == 0 })
	del(t, c, store.DocumentKey(plan.KindPlan, "free"))
	del(t, c, store.DocumentKey(plan.KindTenant, "org"))
	r.untilRejected(2)
	inForce := func(r *replica) {
		t.Helper()
		r.untilRejected(2)
		terms := r.Snapshot().Terms(time.Now(), "shop", "user")
		if terms.Broken != "" || len(terms.Nodes) != 2 {
			t.Errorf("terms %+v", terms)
			return
		}
		for _, g := range terms.Nodes[0].Guards {
			if g.Kind == plan.KindTenant && g.Revision != 0 {
				t.Errorf("guard %+v of a tenant that does not exist", g)
			}
		}
	}
	inForce(r)
	r.until("kept text", func(*plan.Snapshot) bool { return get(t, c, store.EffectiveKey(plan.KindTenant, "org")) != "" })
	r.stop()
	r = startDocuments(t, c, zerolog.Nop())
	inForce(r)
	del(t, c, store.DocumentKey(plan.KindTenant, "user"))
	r.until("all gone", func(s *plan.Snapshot) bool {
		return len(r.Rejected()) == 0 && s.Plan("free") == nil && s.Tenant("org") == nil
	})
	r.until("nothing left in etcd", func(*plan.Snapshot) bool {
		return get(t, c, store.EffectiveKey(plan.KindPlan, "free")) == "" && get(t, c, store.StatusKey(plan.KindPlan, "free")) == "" &&
			get(t, c, store.EffectiveKey(plan.KindTenant, "org")) == "" && get(t, c, store.StatusKey(plan.KindTenant, "org")) == ""
	})
}

// C071.
func TestTimeZoneIsFixedByUse(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	zone := func(z string) func(*plan.Snapshot) bool {
		return func(s *plan.Snapshot) bool { return s.App("shop") != nil && s.App("shop").TimeZone.String() == z }
	}
	key := store.DocumentKey(plan.KindApp, "shop")
	put(t, c, key, appText("shop", "UTC"))
	r.until("UTC", zone("UTC"))
	put(t, c, key, appText("shop", "Asia/Tokyo"))
	r.until("Tokyo", zone("Asia/Tokyo"))
	put(t, c, store.UsedKey("shop"), "")
	put(t, c, key, appText("shop", "UTC"))
	r.untilRejected(1)
	if p := r.Rejected()[0].Problems[0]; p.Line != 5 || p.Path != "spec.time_zone" {
		t.Errorf("problem %+v", p)
	}
	if !zone("Asia/Tokyo")(r.Snapshot()) {
		t.Errorf("zone is %s", r.Snapshot().App("shop").TimeZone)
	}
	put(t, c, key, appText("shop", "Asia/Tokyo")+"  # changed back\n")
	r.untilRejected(0)
}

// C105.
func TestCompactionWhileAway(t *testing.T) {
	c := ownServer(t).Client()
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 1))
	}
	var cut cutWatcher
	cut.Watcher = c.Watcher
	away := clientv3.NewCtxClient(t.Context())
	away.KV, away.Watcher = c.KV, &cut
	r := startDocuments(t, away, zerolog.Nop())
	r.until("all", func(s *plan.Snapshot) bool { return len(s.Names(plan.KindPlan)) == 4 })
	cut.cut(true)
	for _, name := range []string{"a", "b", "c", "e"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 2))
	}
	del(t, c, store.DocumentKey(plan.KindPlan, "d"))
	last := put(t, c, "/elsewhere", "")
	if _, err := c.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	cut.cut(false)
	r.until("as if never away", func(s *plan.Snapshot) bool {
		return strings.Join(s.Names(plan.KindPlan), " ") == "a b c e" && amount(s, "a") == 2 && amount(s, "e") == 2
	})
}

// cutWatcher ends its watches, and begins no new ones, while it is cut.
type cutWatcher struct {
	clientv3.Watcher
	mu     sync.Mutex
	isCut  bool
	cancel []context.CancelFunc
}

func (w *cutWatcher) cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = is
	for _, cancel := range w.cancel {
		cancel()
	}
	w.cancel = nil
}

func (w *cutWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		// A cut network: the caller believes in its old revision.
		ch := make(chan clientv3.WatchResponse)
		close(ch)
		return ch
	}
	ctx, cancel := context.WithCancel(ctx)
	w.cancel = append(w.cancel, cancel)
	return w.Watcher.Watch(ctx, key, opts...)
}

// C107.
func TestKeysOutsideOfTheSchemaAreIgnoredWithOneWarning(t *testing.T) {
	c := ownServer(t).Client()
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	for _, name := range []string{"pro", "pro-2024"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 3))
	}
	put(t, c, "/mete/v1/plans/pro/notes", "call them")
	put(t, c, "/mete/v1/plans/pro/notes", "call them again")
	r.until("plans", func(s *plan.Snapshot) bool { return amount(s, "pro") == 3 && amount(s, "pro-2024") == 3 })
	del(t, c, "/mete/v1/plans/pro/notes")
	del(t, c, store.DocumentKey(plan.KindPlan, "pro-2024"))
	r.until("deletion", func(s *plan.Snapshot) bool { return s.Plan("pro-2024") == nil })
	if amount(r.Snapshot(), "pro") != 3 || len(r.Rejected()) > 0 {
		t.Errorf("pro allows %d; rejected %+v", amount(r.Snapshot(), "pro"), r.Rejected())
	}
	if n := strings.Count(log.String(), "/mete/v1/plans/pro/notes"); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, log.String())
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestSeveralReplicasPublishOnce(t *testing.T) {
	c := ownServer(t).Client()
	var logs [3]syncBuffer
	var rs []*replica
	for i := range logs {
		rs = append(rs, startDocuments(t, c, zerolog.New(&logs[i])))
	}
	for i := range 20 {
		put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", i+1))
	}
	for _, r := range rs {
		r.until("last edit", hasAmount("pro", 20))
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), "{")
	for _, r := range rs {
		r.untilRejected(1)
	}
	time.Sleep(300 * time.Millisecond)
	st, err := c.Get(t.Context(), store.StatusKey(plan.KindPlan, "pro"))
	if err != nil || len(st.Kvs) != 1 || st.Kvs[0].Version != 1 {
		t.Errorf("status was written more than once: %v, %v", st, err)
	}
	for i := range logs {
		if n := strings.Count(logs[i].String(), "edit is rejected"); n != 1 {
			t.Errorf("replica %d logged %d rejections, want 1:\n%s", i, n, logs[i].String())
		}
	}
}

func TestAnotherEpochIsAReset(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("plan", hasAmount("pro", 1))
	put(t, c, store.EpochKey, "another")
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("edit", hasAmount("pro", 2))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets != 1 {
		t.Errorf("%d resets, want 1", r.resets)
	}
}

// C149: nothing is in force before everything is read.
func TestTheFirstSnapshotIsComplete(t *testing.T) {
	c := ownServer(t).Client()
	const n = 300
	for i := range n {
		name := fmt.Sprint("p", i)
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 1))
	}
	r := startDocuments(t, c, zerolog.Nop())
	r.until("snapshot", func(*plan.Snapshot) bool { return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := len(r.snaps[0].Names(plan.KindPlan)); got != n {
		t.Errorf("the first snapshot has %d of %d plans", got, n)
	}
}

func TestApplyDocuments(t *testing.T) {
	c := ownServer(t).Client()
	var changes []store.Change
	for i := range 130 {
		name := fmt.Sprint("p", i)
		changes = append(changes, store.Change{Kind: plan.KindPlan, Name: name, Text: []byte(planText(name, 1))})
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "p100"), "mine")
	_, err := store.ApplyDocuments(t.Context(), c, changes)
	var partial *store.PartialError
	if !asPartial(err, &partial) || partial.Applied != 60 || partial.Total != 130 || !strings.Contains(err.Error(), "p100") {
		t.Errorf("got %v, want 60 of 130 and p100 named", err)
	}
	all, err := store.ListDocuments(t.Context(), c, plan.KindPlan)
	if err != nil || len(all) != 61 {
		t.Errorf("%d documents, %v; want 61", len(all), err)
	}
	got, err := store.GetDocument(t.Context(), c, plan.KindPlan, "p3")
	if err != nil || string(got.Text) != planText("p3", 1) || got.ModRevision == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := store.DeleteDocument(t.Context(), c, plan.KindPlan, "p3", got.ModRevision-1); err == nil {
		t.Error("deleted at another revision")
	}
	if err := store.DeleteDocument(t.Context(), c, plan.KindPlan, "p3", got.ModRevision); err != nil {
		t.Error(err)
	}
}
