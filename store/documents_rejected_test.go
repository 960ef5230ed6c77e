package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

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
