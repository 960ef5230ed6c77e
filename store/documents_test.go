package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

func appText(name, zone string) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: App\nmetadata: {name: %s}\nspec:\n  time_zone: %s\n  identity:\n    tenant: [{request_header: x-tenant}]\n", name, zone)
}

func planText(name string, amount int) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: Plan\nmetadata: {name: %s}\nspec:\n  limits:\n    monthly: {kind: quota, amount: %d, reset: {calendar: month}, cascade: true}\n", name, amount)
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
	list := r.Rejected()
	r.t.Fatalf("not within 5 s: %s; %d rejected: %.2000s", what, len(list), fmt.Sprintf("%+v", list))
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
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	s := r.until("tenant on a plan", func(s *plan.Snapshot) bool {
		terms := s.Terms(time.Now(), "shop", "org:acme")
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
	for _, g := range s.Terms(time.Now(), "shop", "org:acme").Nodes[0].Guards {
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
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "free", "org:z"))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:z"), tenantText("org:z", "free", ""))
	r.untilRejected(2)
	if terms := r.Snapshot().Terms(time.Now(), "shop", "org:a"); terms.Broken == "" {
		t.Errorf("a tenant without a valid document has terms %+v", terms)
	}
	r.until("status", func(*plan.Snapshot) bool { return get(t, c, store.StatusKey(plan.KindTenant, "org:z")) != "" })
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	r.untilRejected(0)
	r.until("no status", func(*plan.Snapshot) bool {
		return get(t, c, store.StatusKey(plan.KindTenant, "org:a")) == "" && get(t, c, store.StatusKey(plan.KindTenant, "org:z")) == ""
	})
	if terms := r.Snapshot().Terms(time.Now(), "shop", "org:a"); terms.Broken != "" || len(terms.Nodes) != 2 {
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
	for i, f := range files {
		if i%4 > 0 {
			continue // those of every fourth kind are enough
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(text)
	}
	kinds := map[string]bool{}
	for what, text := range all {
		_, problems := plan.DecodeOne(plan.KindPlan, "p", "", []byte(text))
		if !plan.Refused(problems) {
			t.Errorf("%s is not broken", what)
		}
		kinds[problems[0].Message] = true
	}
	if len(kinds) < 20 {
		t.Fatalf("%d kinds of broken document, want 20", len(kinds))
	}
	return all
}

// A spoiled store holds every kind of broken document, each over a good one.
type spoiled struct {
	plans  map[string]string // name of the plan, by what is wrong with it
	before *plan.Snapshot    // when all was good
	at     time.Time         // when terms are compared
}

func spoil(t *testing.T, c *clientv3.Client, r *replica) spoiled {
	t.Helper()
	bad := broken(t)
	s := spoiled{plans: map[string]string{}, at: time.Now()}
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	for what := range bad {
		name := fmt.Sprint("p", len(s.plans))
		s.plans[what] = name
		s.mend(t, c, what, 1000+len(s.plans))
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "good"), planText("good", 1))
	s.before = r.until("all good", func(snap *plan.Snapshot) bool {
		return len(snap.Names(plan.KindPlan)) == len(bad)+1 && len(r.Rejected()) == 0 && snap.Tenant("org:p0") != nil
	})
	for what, text := range bad {
		put(t, c, store.DocumentKey(plan.KindPlan, s.plans[what]), strings.ReplaceAll(text, "name: p}", "name: "+s.plans[what]+"}"))
		put(t, c, store.DocumentKey(plan.KindTenant, "org:"+s.plans[what]), text)
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "good"), planText("good", 2))
	put(t, c, store.DocumentKey(plan.KindPlan, "never"), "{")
	put(t, c, store.DocumentKey(plan.KindTenant, "org:never"), tenantText("org:never", "never", ""))
	return s
}

func (s spoiled) mend(t *testing.T, c *clientv3.Client, what string, amount int) {
	t.Helper()
	name := s.plans[what]
	put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, amount))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:"+name), tenantText("org:"+name, name, ""))
}

// rejected is how many edits are: a plan and a tenant each, and one plan that was
// never valid.
func (s spoiled) rejected() int { return 2*len(s.plans) + 1 }

// check compares all decisions with those before.
func (s spoiled) check(t *testing.T, now *plan.Snapshot) {
	t.Helper()
	for what, name := range s.plans {
		if got, want := amount(now, name), amount(s.before, name); got != want {
			t.Errorf("%s: plan %s allows %d, want %d", what, name, got, want)
		}
		was, is := s.before.Terms(s.at, "shop", "org:"+name), now.Terms(s.at, "shop", "org:"+name)
		if was.Broken != "" || len(was.Nodes) != 1 {
			t.Fatalf("%s: terms of org:%s were %+v", what, name, was)
		}
		if is.Broken != "" || len(is.Nodes) != 1 || is.Nodes[0].Plan != name || !reflect.DeepEqual(is.Nodes[0].Limits, was.Nodes[0].Limits) {
			t.Errorf("%s: terms of org:%s are %+v, were %+v", what, name, is, was)
		}
	}
	if terms := now.Terms(time.Now(), "shop", "org:never"); terms.Broken == "" {
		t.Errorf("a plan that was never valid gives %+v", terms)
	}
}

// C016, and features: 20 kinds of broken document change no decision; a restart
// keeps the last good one.
func TestBrokenDocumentsChangeNothing(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	s := spoil(t, c, r)
	r.until("the last edits", func(s *plan.Snapshot) bool { return amount(s, "good") == 2 && s.Tenant("org:never") != nil })
	r.untilRejected(s.rejected())
	s.check(t, r.Snapshot())
	r.untilStatuses(c, s.rejected())
	r.stop()

	// History must not be what a restart lives on.
	now := put(t, c, "/elsewhere", "")
	if _, err := c.Compact(t.Context(), now, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	r = startDocuments(t, c, zerolog.Nop())
	r.until("the last edits", func(s *plan.Snapshot) bool { return amount(s, "good") == 2 && s.Tenant("org:never") != nil })
	r.untilRejected(s.rejected())
	s.check(t, r.Snapshot())
	catalog, _, err := store.LoadCatalog(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s.check(t, catalog.Snapshot())

	for what := range s.plans {
		s.mend(t, c, what, 7)
	}
	r.untilRejected(1)
	r.untilStatuses(c, 1)
	r.until("no text kept of tenants", func(*plan.Snapshot) bool {
		kept, err := c.Get(t.Context(), store.EffectivePrefix+"tenants/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && kept.Count == 0
	})
}

// untilStatuses waits until etcd tells of n rejected documents, and why.
func (r *replica) untilStatuses(c *clientv3.Client, n int) {
	r.t.Helper()
	var all []store.Rejection
	r.until(fmt.Sprintf("%d statuses", n), func(*plan.Snapshot) bool {
		var err error
		all, err = store.Statuses(r.t.Context(), c)
		return err == nil && len(all) == n
	})
	for _, st := range all {
		if len(st.Problems) == 0 || st.Problems[0].Message == "" || st.Revision == 0 || st.Since.IsZero() {
			r.t.Errorf("status %+v", st)
			continue
		}
		for _, p := range st.Problems {
			if p.Line == 0 && !st.Deleted {
				r.t.Errorf("%s %s: no line: %+v", st.Kind, st.Name, p)
			}
		}
	}
}

// A client over TCP has a watcher of its own, and outlives a server's restart.
func TestDocumentsOverTCPOutliveARestartOfEtcd(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0"}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientURL = s.Endpoint()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	c, err := store.Connect(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r := startDocuments(t, c, zerolog.Nop())
	defer r.stop()
	r.until("plan", hasAmount("pro", 1))
	s.Close()
	if amount(r.Snapshot(), "pro") != 1 {
		t.Error("without etcd the plan is forgotten")
	}
	s, err = embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("edit after the restart", hasAmount("pro", 2))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets != 0 {
		t.Errorf("a restart is no reset, but there were %d", r.resets)
	}
}

// A store with another history at the same address is a reset.
func TestAnotherStoreIsAReset(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0"}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg = embedded.Config{Dir: t.TempDir(), ClientURL: s.Endpoint()}
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "old"), planText("old", 1))
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	c, err := store.Connect(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r := startDocuments(t, c, zerolog.Nop())
	defer r.stop()
	r.until("plan", hasAmount("pro", 1))
	s.Close()
	s, err = embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("the new store's documents alone", func(snap *plan.Snapshot) bool {
		return amount(snap, "pro") == 2 && snap.Plan("old") == nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets == 0 {
		t.Error("no reset")
	}
}

// A tenant whose edit was bad while nobody watched is found in history.
func TestATenantSpoiledBeforeAStartIsFoundInHistory(t *testing.T) {
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), "{")
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), "[")
	r := startDocuments(t, c, zerolog.Nop())
	r.untilRejected(1)
	if terms := r.Snapshot().Terms(time.Now(), "shop", "org:acme"); terms.Broken != "" || len(terms.Nodes) != 1 {
		t.Errorf("terms %+v", terms)
	}
}

func TestDeletionOfWhatIsInUseIsRejected(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:o"), tenantText("org:o", "free", ""))
	put(t, c, store.DocumentKey(plan.KindTenant, "user:u"), tenantText("user:u", "free", "org:o"))
	r.until("tenants", func(s *plan.Snapshot) bool { return s.Tenant("user:u") != nil && len(r.Rejected()) == 0 })
	del(t, c, store.DocumentKey(plan.KindPlan, "free"))
	del(t, c, store.DocumentKey(plan.KindTenant, "org:o"))
	r.untilRejected(2)
	inForce := func(r *replica) {
		t.Helper()
		r.untilRejected(2)
		terms := r.Snapshot().Terms(time.Now(), "shop", "user:u")
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
	r.until("kept text", func(*plan.Snapshot) bool { return get(t, c, store.EffectiveKey(plan.KindTenant, "org:o")) != "" })
	r.stop()
	r = startDocuments(t, c, zerolog.Nop())
	inForce(r)
	del(t, c, store.DocumentKey(plan.KindTenant, "user:u"))
	r.until("all gone", func(s *plan.Snapshot) bool {
		return len(r.Rejected()) == 0 && s.Plan("free") == nil && s.Tenant("org:o") == nil
	})
	r.until("nothing left in etcd", func(*plan.Snapshot) bool {
		return get(t, c, store.EffectiveKey(plan.KindPlan, "free")) == "" && get(t, c, store.StatusKey(plan.KindPlan, "free")) == "" &&
			get(t, c, store.EffectiveKey(plan.KindTenant, "org:o")) == "" && get(t, c, store.StatusKey(plan.KindTenant, "org:o")) == ""
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
	t.Parallel()
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
	const n = 120
	var ops []clientv3.Op
	for i := range n {
		name := fmt.Sprint("p", i)
		ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindPlan, name), planText(name, 1)))
	}
	if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
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
