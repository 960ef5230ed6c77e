package plan_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/meteproject/mete/plan"
)

// read returns a file of testdata.
func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// lines returns problems as a person reads them.
func lines(problems []plan.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Six faults of one file, and what is said of each, word for word.
func TestDecode_SaysItAsStandardsDo(t *testing.T) {
	want := string(read(t, "golden", "plans.txt"))
	docs, problems := plan.Decode("plans.yaml", read(t, "golden", "plans.yaml"))
	if got := lines(problems); got != want || len(docs) != 0 {
		t.Errorf("got %d documents and\n%s\nwant\n%s", len(docs), got, want)
	}
}

// The examples that documents were designed by: all that is said of them is what this
// version does not enforce yet, and that nobody's key is known for a signed header.
func TestDecode_StandardsExamples(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, name := range []string{"small", "medium", "big"} {
		_, problems := plan.Decode(name+".yaml", read(t, "standards", name+".yaml"))
		got.WriteString(lines(problems))
	}
	if want := string(read(t, "golden", "standards.txt")); got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// What documents may say of settlement is read without a word, by the schema too.
func TestDecode_Schema_A37_A38_C43_C59_Settlement(t *testing.T) {
	t.Parallel()
	text := read(t, "golden", "settlement.yaml")
	docs, problems := plan.Decode("settlement.yaml", text)
	if len(docs) != 2 || len(problems) != 0 {
		t.Fatalf("%d documents\n%s", len(docs), lines(problems))
	}
	schema := compiled(t)
	for i, v := range plan.PlainAll(text) {
		if err := schema.Validate(v); err != nil {
			t.Errorf("document %d: %v", i, err)
		}
	}
	c := plan.NewCatalog()
	for _, d := range docs {
		if level, path := d.Needs(); level != 3 {
			t.Errorf("%s needs level %d for %q", d.Name, level, path)
		}
		c.Put(d, 1)
	}
	for _, d := range docs {
		if got := lines(c.Check(d)); got != "" {
			t.Errorf("%s: %s", d.Name, got)
		}
	}
}

const goodPlan = `apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
    per_second: {kind: rate, amount: 10, window: 1s}
    monthly: {kind: quota, amount: 1000, reset: {calendar: month}}
`

// decodeOne returns the one document of text, which must be clean.
func decodeOne(tb testing.TB, text string) *plan.Document {
	tb.Helper()
	docs, problems := plan.Decode("test.yaml", []byte(text))
	if len(docs) != 1 || plan.Refused(problems) {
		tb.Fatalf("%d documents\n%s%s", len(docs), lines(problems), text)
	}
	return docs[0]
}

// Case C112: what hands and tools make of a document.
func TestDecode_C112_ByHand(t *testing.T) {
	const asJSON = `{"apiVersion":"mete/v1","kind":"Plan","metadata":{"name":"free"},"spec":{"limits":{"per_second":{"kind":"rate","amount":10,"window":"1s"}}}}`
	for name, text := range map[string]string{
		"as it is":          goodPlan,
		"trailing newlines": goodPlan + "\n\n",
		"no newline":        strings.TrimSuffix(goodPlan, "\n"),
		"CRLF":              strings.ReplaceAll(goodPlan, "\n", "\r\n"),
		"byte order mark":   "\ufeff" + goodPlan,
		"leading space":     "\n\n  \n" + goodPlan,
		"comment":           "# ours\n" + goodPlan + "# the end\n",
		"marker":            "---\n" + goodPlan,
		"comment, marker":   "# ours\n---\n" + goodPlan,
		"end marker":        goodPlan + "...\n",
		"JSON":              asJSON,
		"JSON in space":     " \r\n\t" + asJSON + "\n\n",
		"JSON with mark":    "\ufeff" + asJSON,
	} {
		doc := decodeOne(t, text)
		if doc.Kind != plan.KindPlan || doc.Name != "free" || doc.Plan.Limits[0].Amount != 10 {
			t.Errorf("%s: got %+v", name, doc)
		}
	}
	for name, row := range map[string]struct{ text, want string }{
		"JSON with a comment":     {"{ // ours\n" + asJSON[1:], `1:3: is not JSON: invalid character '/' looking for beginning of object key string`},
		"JSON with a duplicate":   {strings.Replace(asJSON, `"amount":10`, `"amount":10,"amount":20`, 1), "1:124: spec.limits.per_second.amount: is written twice, first in line 1; keep one"},
		"JSON with more after it": {asJSON + "\n{}", `2:1: is not JSON: invalid character '{' after top-level value`},
		"JSON with NaN":           {strings.Replace(asJSON, `:10`, `:NaN`, 1), `1:121: is not JSON: invalid character 'N' looking for beginning of value`},
		"JSON with -1":            {strings.Replace(asJSON, `:10`, `:-1`, 1), "1:121: spec.limits.per_second.amount: -1 is below 0; write a number, or unlimited for no bound"},
		"JSON with null":          {strings.Replace(asJSON, `:10`, `:null`, 1), "1:121: spec.limits.per_second.amount: has no value, which is not zero; write one or leave the field out"},
		"JSON with text":          {strings.Replace(asJSON, `:10`, `:"100"`, 1), `1:121: spec.limits.per_second.amount: "100" is in quotes; write 100 without them`},
		"JSON with nothing":       {strings.Replace(asJSON, `:10`, `:""`, 1), `1:121: spec.limits.per_second.amount: "" is not a number; write a whole number in digits`},
		"JSON rounded by a tool":  {strings.Replace(asJSON, `:10`, `:1e15`, 1), "1:121: spec.limits.per_second.amount: 1e15 is not a whole number; write digits 0 to 9 alone, without point, sign, exponent or _"},
		"JSON comma":              {strings.Replace(asJSON, `10,`, `10,,`, 1), `1:124: is not JSON: invalid character ',' looking for beginning of object key string`},
		"JSON cut off":            {`{"limit":`, "1:9: is not JSON: unexpected end of JSON input"},
		"unknown key":             {goodPlan + "owner: me\n", "8:1: owner: unknown field; the fields here are apiVersion, kind, metadata and spec"},
		"nothing":                 {"", "1:1: is empty; write a document, or delete the key to remove it"},
		"spaces":                  {strings.Repeat(" ", 1<<20), "1:1: has 1048576 bytes, more than 262144; split it into several documents"},
		"comments alone":          {"# nothing\n", "1:1: is empty; write a document, or delete the key to remove it"},
		"UTF-16":                  {"\xff\xfea\x00", "1:1: is no UTF-8; save it as UTF-8"},
	} {
		docs, problems := plan.Decode("", []byte(row.text))
		if got := lines(problems); got != row.want+"\n" || len(docs) != 0 {
			t.Errorf("%s: %d documents, got\n%swant\n%s", name, len(docs), got, row.want)
		}
	}
}

// Case C016: a bad document spoils no other.
func TestDecode_C016_EachForItself(t *testing.T) {
	other := strings.Replace(goodPlan, "name: free", "name: pro", 1)
	text := goodPlan + "---\n{\"limit\":\n---\n# nothing\n---\n" + other
	docs, problems := plan.Decode("f", []byte(text))
	if len(docs) != 2 || docs[0].Name != "free" || docs[1].Name != "pro" {
		t.Errorf("got %v", docs)
	}
	want := "f:9:10: is not JSON: unexpected end of JSON input\nf:11:1: is empty; write a document, or delete the key to remove it\n"
	if got := lines(problems); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := string(docs[0].Text); got != goodPlan {
		t.Errorf("the text is not kept: %q", got)
	}
}

func TestDecodeOne(t *testing.T) {
	for name, row := range map[string]struct {
		kind       plan.Kind
		name, text string
		good       bool
	}{
		"right":         {plan.KindPlan, "free", goodPlan, true},
		"another name":  {plan.KindPlan, "pro", goodPlan, false},
		"another kind":  {plan.KindApp, "free", goodPlan, false},
		"two documents": {plan.KindPlan, "free", goodPlan + "---\n" + goodPlan, false},
		"second is bad": {plan.KindPlan, "free", goodPlan + "---\n", false},
		"bad":           {plan.KindPlan, "free", "{", false},
	} {
		doc, problems := plan.DecodeOne(row.kind, row.name, "key", []byte(row.text))
		if (doc != nil) != row.good || plan.Refused(problems) == row.good {
			t.Errorf("%s: got %v\n%s", name, doc, lines(problems))
		}
	}
}

// Cases C008 and C009, and amounts that a float64 would round.
func TestDecode_Amounts(t *testing.T) {
	for text, want := range map[string]plan.Limit{
		"0":               {Amount: 0},
		"1":               {Amount: 1},
		"999999999999999": {Amount: plan.MaxAmount},
		"900719925474099": {Amount: 900719925474099},
		"unlimited":       {Unlimited: true},
		`"unlimited"`:     {Unlimited: true},
	} {
		for _, form := range []string{
			"kind: Plan\nmetadata: {name: free}\nspec: {limits: {x: {kind: rate, amount: %, window: 1s}}}",
			"kind: Plan\nmetadata: {name: free}\nspec: {limits: {x: {kind: quota, amount: %, reset: {calendar: day}}}}",
			"kind: Tenant\nmetadata: {name: \"org:a\"}\nspec: {limits: {x: {kind: quota, amount: %, reset: {calendar: day}}}}",
		} {
			doc := decodeOne(t, "apiVersion: mete/v1\n"+strings.Replace(form, "%", text, 1))
			var limits []plan.Limit
			if doc.Plan != nil {
				limits = doc.Plan.Limits
			} else {
				limits = doc.Tenant.Limits
			}
			if got := limits[0]; got.Amount != want.Amount || got.Unlimited != want.Unlimited {
				t.Errorf("%s: got %d, unlimited %v", text, got.Amount, got.Unlimited)
			}
		}
	}
}

// Case C020: several limits of one kind and unit stand side by side, in order.
func TestDecode_C020_SeveralLimits(t *testing.T) {
	doc := decodeOne(t, `apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
    z: {kind: rate, amount: 2, window: 1s}
    a: {kind: rate, amount: 100, window: 1m}
    b: {kind: rate, amount: 50, window: 1m}
    d: {kind: quota, amount: 1000, reset: {calendar: day}}
    c: {kind: quota, amount: 10000, reset: {calendar: month}}
`)
	var names []string
	for _, l := range doc.Plan.Limits {
		names = append(names, l.Name)
	}
	if got := strings.Join(names, ""); got != "zabdc" {
		t.Errorf("got limits %s", got)
	}
}

func TestDecode_Defaults(t *testing.T) {
	app := decodeOne(t, "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec: {time_zone: Europe/Berlin, identity: {tenant: [{api_key: Authorization}, {metadata: \"a.b:c.d\"}, {jwt_claim: org.id}]}}\n").App
	if app.TimeZone.String() != "Europe/Berlin" || app.Defaults.OnUnavailable != plan.Allow || app.Defaults.Replicas != plan.Full ||
		app.Identity.WithoutTenant != plan.Deny || !app.Headers.XEnvoyRateLimited || app.Headers.RateLimitName != "ratelimit" ||
		app.Headers.PolicyName != "ratelimit-policy" || app.Refusal.ContentType != "application/json" {
		t.Errorf("got %+v", app)
	}
	if s := app.Identity.Tenant; s[0].Kind != plan.SourceAPIKey || s[0].Name != "authorization" ||
		s[1].Name != "a.b" || strings.Join(s[1].Path, "/") != "c/d" || strings.Join(s[2].Path, "/") != "org/id" {
		t.Errorf("got sources %+v", s)
	}
	limits := decodeOne(t, goodPlan).Plan.Limits
	if l := limits[0]; l.Burst != 10 || l.Unit != "requests" || !l.Advertise || l.Replicas != plan.SpreadUnset {
		t.Errorf("got %+v", l)
	}
	want := plan.LeaseRule{First: 10, MaxShare: 1000, Demand: 10e9, RenewAtUsed: 7000, RenewAfter: 45e9, UsableFor: 60e9}
	if got := limits[1].Lease; got != want {
		t.Errorf("got lease %+v, want %+v", got, want)
	}
}

// What a limit may say of its leases and of an etcd that is away (C21, C23, P44, Q45).
func TestDecode_C21_C23_P44_Q45_LeasesAndOutages(t *testing.T) {
	doc := decodeOne(t, `apiVersion: mete/v1
kind: Plan
metadata: {name: p}
spec:
  limits:
    second: {kind: rate, amount: 10, window: 1s}
    capped: {kind: quota, amount: 1000, reset: {calendar: day}, on_unavailable: {allow: {units: 500, for: 5m}}}
    denied: {kind: quota, amount: 1000, reset: {calendar: day}, on_unavailable: deny, lease: {wait: 2s, report_every: 1s, exact_below: 0.1%}}
`)
	capped, denied := doc.Plan.Limits[1], doc.Plan.Limits[2]
	if capped.OnUnavailable != plan.Allow || capped.AllowCap != (plan.AllowCap{Units: 500, For: 5 * time.Minute}) {
		t.Errorf("got %v up to %+v", capped.OnUnavailable, capped.AllowCap)
	}
	if l := denied.Lease; denied.OnUnavailable != plan.Deny || l.Wait != 2*time.Second || l.ReportEvery != time.Second || l.ExactBelow != 10 {
		t.Errorf("got %v, %+v", denied.OnUnavailable, l)
	}
}

// A warning keeps nothing from being applied.
func TestDecode_Warnings(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: mete/v1\nkind: Plan\nmetadata: {name: a}\nspec: {limits: {m: {kind: quota, amount: 1, reset: {calendar: day}}}}":                                                                                                  "f:4:16: spec.limits: warning: a quota without a rate limit can be used up in a moment; add a limit of kind: rate\n",
		"apiVersion: mete/v1\nkind: App\nmetadata: {name: a}\nspec: {time_zone: UTC, identity: {tenant: [{jwt_claim: o}], classes: [{name: a, when: {credential_prefix: [p_]}}]}}":                                                     "f:4:70: spec.identity.classes: warning: a caller that meets no condition is in no class; write one without \"when\" last\n",
		"apiVersion: mete/v1\nkind: App\nmetadata: {name: a}\nspec: {time_zone: UTC, identity: {tenant: [{jwt_claim: o}], signed_headers: {X-B: {callers: {a: {keys: [\"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"]}}}}}}": "f:4:77: spec.identity.signed_headers: warning: no class asks for x-b, so it changes nothing; write one with when: {signed_header: x-b}\n",
		"apiVersion: mete/v1\nkind: App\nmetadata: {name: a}\nspec: {time_zone: UTC, identity: {tenant: [{jwt_claim: o}], classes: [{name: a}, {name: b}]}}":                                                                           "f:4:82: spec.identity.classes[1]: warning: nobody is in this class: a before it has no condition; write it last\n",
	} {
		docs, problems := plan.Decode("f", []byte(text))
		if got := lines(problems); got != want || len(docs) != 1 {
			t.Errorf("%d documents, got\n%swant\n%s", len(docs), got, want)
		}
	}
}

// Nothing that is sent may hold a decoder up or bring it down.
func TestDecode_Hostile(t *testing.T) {
	for name, text := range map[string]string{
		"lists":        strings.Repeat("[", 250000),
		"maps":         strings.Repeat("{a: ", 60000),
		"JSON lists":   `{"a":` + strings.Repeat("[", 250000),
		"JSON maps":    strings.Repeat(`{"a":`, 50000),
		"JSON 40 deep": strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40),
		"blocks":       strings.Repeat("- ", 120000),
		"keys":         strings.Repeat("? ", 120000),
		"quotes":       strings.Repeat("'a' ", 60000) + ":",
		"documents":    strings.Repeat("---\n", 60000),
		"many keys":    "spec:\n" + strings.Repeat(" a: 1\n", 40000),
		"wide":         "{" + strings.Repeat("a,", 100000) + "}",
		"escapes":      `{"a":"` + strings.Repeat(`\ud800`, 40000) + `"}`,
		"control":      "a: \x00\x01",
	} {
		docs, problems := plan.Decode("", []byte(text))
		if len(docs) != 0 || !plan.Refused(problems) {
			t.Errorf("%s: %d documents", name, len(docs))
		}
	}
}
