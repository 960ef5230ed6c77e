package plan_test

import (
	"testing"

	"github.com/meteproject/mete/plan"
)

// What only the key that a document lies under shows to be wrong has a line too.
func TestDecodeOne_SaysWhereAForeignDocumentIs(t *testing.T) {
	t.Parallel()
	const good = "# c\napiVersion: mete/v1\nkind: Plan\nmetadata: {name: p}\nspec: {limits: {a: {kind: rate, amount: 1, window: 1s}}}\n"
	for _, c := range []struct {
		kind      plan.Kind
		name      string
		text      string
		line, col int
	}{
		{plan.KindPlan, "q", good, 4, 18},
		{plan.KindApp, "p", good, 3, 7},
		{plan.KindPlan, "p", good + "---\n" + good, 6, 1},
		{plan.KindPlan, "p", "# c\n---\n" + good + "---\n" + good, 8, 1},
		{plan.KindPlan, "p", good + "---\nnonsense\n", 6, 1},
		{plan.KindPlan, "p", `{"apiVersion": "mete/v1", "kind": "Plan", "metadata": {"name": "q"}, "spec": {"limits": {}}}`, 1, 64},
	} {
		doc, problems := plan.DecodeOne(c.kind, c.name, "", []byte(c.text))
		if doc != nil || !plan.Refused(problems) {
			t.Errorf("read %v from %q", doc, c.text)
			continue
		}
		if last := problems[len(problems)-1]; last.Line != c.line || last.Col != c.col {
			t.Errorf("%d:%d, want %d:%d: %v of %q", last.Line, last.Col, c.line, c.col, last, c.text)
		}
	}
}

// Problems of the catalog are placed by path, also below keys that hold the dots of
// a path, and in the second document of a file.
func TestCheck_SaysWhereByPath(t *testing.T) {
	t.Parallel()
	docs, problems := plan.Decode("f", []byte(`apiVersion: mete/v1
kind: Tenant
metadata: {name: "org:a"}
spec: {plan: none}
---
apiVersion: mete/v1
kind: Tenant
metadata:
  name: "org:b"
  annotations: {spec.plan: x, metadata: y}
spec:
  parent: org:z
  plan: none
`))
	if len(docs) != 2 {
		t.Fatal(problems)
	}
	c := plan.NewCatalog()
	for _, want := range []struct {
		doc   int
		path  string
		place [2]int
	}{
		{0, "spec.plan", [2]int{4, 14}}, {1, "spec.parent", [2]int{12, 11}}, {1, "spec.plan", [2]int{13, 9}},
	} {
		found := false
		for _, p := range c.Check(docs[want.doc]) {
			if p.Path == want.path {
				found = true
				if p.Line != want.place[0] || p.Col != want.place[1] {
					t.Errorf("%s is at %d:%d, want %v", p.Path, p.Line, p.Col, want.place)
				}
			}
		}
		if !found {
			t.Errorf("no problem at %s", want.path)
		}
	}
}
