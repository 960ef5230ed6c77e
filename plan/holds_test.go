package plan_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/meteproject/mete/plan"
)

// meant returns what terms say, without the revisions that they were read at.
func meant(t plan.Terms) string { return fmt.Sprintf("%s known=%v root=%s", shown(t), t.Known, t.Root) }

func family() []string {
	return []string{"org:a", "org:b", "team:c", "team:d", "user:e", "user:f"}
}

// scramble makes one edit at random.
func scramble(t *testing.T, r *rand.Rand, c *plan.Catalog, revision int64) {
	t.Helper()
	tenants := family()
	limits := []string{
		"{}",
		"{x: {kind: rate, amount: %d, window: 1s}}",
		"{x: {kind: rate, amount: %d, window: 1s, cascade: true}}",
		"{y: {kind: rate, amount: %d, window: 1s}}",
	}
	pick := func(n int64) string {
		l := limits[r.IntN(len(limits))]
		if l == "{}" {
			return l
		}
		return fmt.Sprintf(l, n)
	}
	i := r.IntN(len(tenants))
	text := ""
	switch r.IntN(8) {
	case 0, 1:
		text = doc("Plan", fmt.Sprint("p", r.IntN(2)), "{limits: "+pick(revision)+"}")
	case 2:
		text = fmt.Sprintf("%s  defaults: {plan: p%d}\n", appText, r.IntN(2))
	case 3:
		c.Delete(plan.KindTenant, tenants[i], revision)
	case 4:
		c.SetVoid(tenants[i], revision)
	case 5:
		c.PutBroken(plan.KindTenant, tenants[i], revision, "never valid", nil)
	default:
		spec := "limits: " + pick(revision)
		if i > 1 {
			spec += fmt.Sprintf(", parent: %q", tenants[r.IntN(i)])
		}
		if r.IntN(2) == 0 {
			spec += fmt.Sprint(", plan: p", r.IntN(2))
		}
		if r.IntN(6) == 0 {
			spec += ", app: other"
		}
		text = doc("Tenant", tenants[i], "{"+spec+"}")
	}
	docs, problems := plan.Decode("", []byte(text))
	if text != "" && len(docs) != 1 {
		t.Fatal(text, lines(problems))
	}
	for _, d := range docs {
		c.Put(d, revision)
	}
}

// Terms that hold by their revisions are what the new snapshot gives, whatever was
// edited, deleted, broken or voided in between.
func TestSnapshot_HoldsOnlyWhatIsSo(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	tenants := family()
	c, revision := catalog(t, appText, doc("Plan", "p0", "{limits: {}}"), doc("Plan", "p1", "{limits: {}}")), int64(10)
	held := 0
	for range 4000 {
		before := c.Snapshot()
		for range 1 + r.IntN(2) {
			revision++
			scramble(t, r, c, revision)
		}
		after := c.Snapshot()
		for _, name := range tenants {
			was, is := before.Terms(t0, "api", name), after.Terms(t0, "api", name)
			if !after.Holds(&was) {
				continue
			}
			held++
			if meant(was) != meant(is) || !reflect.DeepEqual(was.Nodes, is.Nodes) {
				t.Fatalf("%s: held\n%s\nbut is\n%s", name, meant(was), meant(is))
			}
		}
	}
	if held < 1000 {
		t.Errorf("only %d terms held", held)
	}
}
