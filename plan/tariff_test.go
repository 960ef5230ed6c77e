package plan_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// tariffDocs are an app and rules that say all that tariffs say.
func tariffDocs(count, rules string) []string {
	app := strings.Replace(appText, "tokens: {}", "tokens: {}, bytes: {}, pages: {}", 1)
	if count != "" {
		app += "\n  count: " + count
	}
	return []string{app, doc("Routes", "api", "{app: api, rules: ["+rules+"]}")}
}

const chatRule = `{name: chat, match: {path: /chat}, weight: 5, units: {tokens: {reserve: 100, use: [{response_header: x-usage}]}}}`

// admitted returns the settlement of a request to a path.
func admitted(t *testing.T, s *plan.Snapshot, path string) string {
	t.Helper()
	settlement := s.Settlement(s.Route("api", "", "GET", path))
	if tariff, known := s.Tariff("api", settlement); !known || tariff == nil {
		t.Fatalf("%s: %+v, known: %t", settlement, tariff, known)
	}
	return settlement
}

// No edit changes what a request costs that was admitted before: neither of its rule, by
// name or sources or gone, nor of what its app counts, nor the end of both.
func TestTariff_A41_EditsChangeNoRequestThatRuns(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(c *plan.Catalog){
		"renamed": func(c *plan.Catalog) {
			putAll(t, c, tariffDocs("", strings.Replace(chatRule, "name: chat", "name: talk", 1))[1])
		},
		"another source": func(c *plan.Catalog) {
			putAll(t, c, tariffDocs("", strings.Replace(chatRule, "x-usage", "x-cost", 1))[1])
		},
		"the name of another": func(c *plan.Catalog) {
			putAll(t, c, tariffDocs("", `{name: chat, match: {path: /x}, units: {bytes: {reserve: 1, use: [{report: true}]}}}`)[1])
		},
		"removed":        func(c *plan.Catalog) { putAll(t, c, tariffDocs("", "{match: {path: /x}}")[1]) },
		"counted other":  func(c *plan.Catalog) { putAll(t, c, tariffDocs("{statuses: [5xx]}", chatRule)[0]) },
		"routes deleted": func(c *plan.Catalog) { c.Delete(plan.KindRoutes, "api", 90) },
		"app deleted":    func(c *plan.Catalog) { c.Delete(plan.KindApp, "api", 90) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := catalog(t, tariffDocs("{statuses: [2xx]}", chatRule)...)
			before := c.Snapshot()
			settlement := admitted(t, before, "/chat")
			want, _ := before.Tariff("api", settlement)
			edit(c)
			got, known := c.Snapshot().Tariff("api", settlement)
			if !known || !reflect.DeepEqual(got, want) || got.Unit("tokens").Use[0].Name != "x-usage" {
				t.Errorf("%+v, known: %t, want %+v", got, known, want)
			}
		})
	}
}

// Where nobody remembers a rule, each source is asked that a rule of its unit names, and
// what the app reports last.
func TestTariff_A41_AnUnknownRuleAsksAllSources(t *testing.T) {
	t.Parallel()
	c := catalog(t, tariffDocs("{statuses: [2xx]}", `
		{name: a, match: {path: /a}, units: {tokens: {reserve: 5, unreported: zero, use: [{response_header: x-a}, {report: true}]}, pages: {reserve: 1}}},
		{name: b, match: {path: /b}, units: {tokens: {reserve: 6, use: [{response_header: x-b}, {response_header: x-a}]}, bytes: {reserve: 9, use: [{response_trailer: x-b}]}}}`)...)
	s := c.Snapshot()
	for _, settlement := range []string{"gone", "gone,AAAAAAAAAAAAAAAA", "a,AAAAAAAAAAAAAAAA,tokens=BBBBBBBBBBBBBBBB,bytes=BBBBBBBBBBBBBBBB", "a,tokens=b,bytes=b"} {
		tariff, known := s.Tariff("api", settlement)
		if known || tariff == nil {
			t.Fatalf("%q: %+v, known: %t", settlement, tariff, known)
		}
		var names []string
		for _, source := range tariff.Unit("tokens").Use {
			names = append(names, fmt.Sprint(source.Kind == plan.SourceReport, source.Name))
		}
		if got := fmt.Sprint(names); got != "[falsex-a falsex-b true]" || tariff.Unit("bytes").Use[0].Name != "x-b" || tariff.Unit("pages") != nil {
			t.Errorf("%q asks %s, %+v", settlement, got, tariff)
		}
		if tariff.Unit("tokens").Unreported != plan.UnreportedReserve || tariff.Count != s.App("api").Count {
			t.Errorf("%q: %+v", settlement, tariff)
		}
	}
	if tariff, known := s.Tariff("other", "gone"); tariff != nil || known {
		t.Errorf("without an app: %+v, %t", tariff, known)
	}
	if tariff, known := s.Tariff("api", "b"); !known || len(tariff.Units) != 2 || tariff.Unit("tokens").Use[0].Name != "x-b" {
		t.Errorf("by its name alone: %+v, %t", tariff, known)
	}
}

// Replicas below level 5 find rules by their names.
func TestTariff_S24_NamesAloneBelowItsLevel(t *testing.T) {
	t.Parallel()
	c := catalog(t, tariffDocs("", chatRule)...)
	c.SetCascades(false)
	s := c.Snapshot()
	if got := s.Settlement(s.Route("api", "", "GET", "/chat")); got != "chat" {
		t.Errorf("%q", got)
	}
	if got := s.Settlement(s.Route("api", "", "GET", "/%00")); strings.Contains(got, ",") {
		t.Errorf("%q", got)
	}
	if got := s.Settlement(s.Route("api", "", "GET", "/")); got != "" {
		t.Errorf("%q", got)
	}
}

// What is stored of a tariff says all of it.
func TestTariff_A41_StoredWhole(t *testing.T) {
	t.Parallel()
	for _, count := range []string{
		"", "{preset: completed}", "{statuses: [2xx, \"304\", \"404\"], grpc_statuses: [OK, NOT_FOUND, UNAUTHENTICATED]}",
		"{grpc_status: {metadata: \"io.example.grpc:trailers.status\"}}",
		"{aborted: true, unfinished: false, replays: true, replay_header: x-again}", "{statuses: [1xx, 2xx, 3xx, 4xx, 5xx, \"304\"]}",
	} {
		c := catalog(t, tariffDocs(count, chatRule+`,
			{name: job, match: {path: /job}, weight: 3, units: {
				tokens: {reserve: 7, max: 9, unreported: weight, use: [{response_trailer: x-u}, {metadata: "io.example.usage:total.tokens"}, {report: true}]},
				bytes: {reserve: 1, unreported: zero, use: [{response_header: x-b}]}, pages: {reserve: 2},
				requests: {use: [{response_header: x-r}]}}}`)...)
		s := c.Snapshot()
		stored := c.TariffsToStore(100)
		if len(stored) != 3 { // of a rule each, and of requests that none matches
			t.Fatalf("%d are stored: %v", len(stored), stored)
		}
		empty := plan.NewCatalog()
		for i := range stored {
			stored[i].Revision = int64(i + 1)
			if !empty.SetTariff(stored[i]) || empty.SetTariff(stored[i]) {
				t.Fatalf("not taken over once: %s", stored[i].Text)
			}
		}
		if owed := empty.TariffsToStore(100); len(owed) > 0 {
			t.Errorf("stored, and owed: %v", owed)
		}
		for _, path := range []string{"/chat", "/job", "/"} {
			settlement := admitted(t, s, path)
			want, _ := s.Tariff("api", settlement)
			if got, known := empty.Snapshot().Tariff("api", settlement); !known || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: %+v, want %+v", count, path, got, want)
			}
		}
	}
}

// A field that is added to what says how requests are settled has to be stored, too.
func TestTariff_A41_NoFieldIsLeftOut(t *testing.T) {
	t.Parallel()
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[plan.Tariff]():  "Count Weight Units",
		reflect.TypeFor[plan.Count]():   "Statuses GRPCStatuses GRPCStatus Aborted Unfinished Replays ReplayHeader",
		reflect.TypeFor[plan.Reserve](): "Unit Amount Max Use Unreported",
		reflect.TypeFor[plan.Source]():  "Kind Name Path Peer Address As", // the last three say who calls
	} {
		var names []string
		for i := range of.NumField() {
			names = append(names, of.Field(i).Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, of which tariffs store %s", of, got, want)
		}
	}
}

// What a later version has stored, and what anybody else has, is no tariff.
func TestTariff_S24_NotUnderstood(t *testing.T) {
	t.Parallel()
	c := catalog(t, tariffDocs("", chatRule)...)
	stored := c.TariffsToStore(100)
	for _, text := range []string{
		"", "{}", "x", "{\"count\":", strings.Replace(string(stored[0].Text), `"weight"`, `"colour":1,"weight"`, 1),
	} {
		other := plan.NewCatalog()
		if other.SetTariff(plan.StoredTariff{ID: plan.TariffID([]byte(text)), Text: []byte(text), Revision: 3}) {
			t.Errorf("%s is taken over", text)
		}
	}
	if plan.NewCatalog().SetTariff(plan.StoredTariff{ID: stored[0].ID, Text: stored[1].Text, Revision: 3}) {
		t.Error("the text of another is taken over")
	}
}

// Tariffs of rules that are gone are bounded in bytes; those of rules in force stay.
func TestTariff_A41_Bounded(t *testing.T) {
	t.Parallel()
	c := catalog(t, tariffDocs("", chatRule)...)
	rules := func(i int) string {
		return strings.Replace(chatRule, "x-usage", fmt.Sprintf("x-usage-%06d", i), 1)
	}
	for i := range 20 { // of 300 rules each
		var all []string
		for j := range 300 {
			all = append(all, strings.NewReplacer("name: chat", fmt.Sprintf("name: chat%d", j), "/chat", fmt.Sprintf("/chat%d", j)).Replace(rules(300*i+j)))
		}
		putAll(t, c, tariffDocs("", strings.Join(all, ", "))[1])
		for k, s := range c.TariffsToStore(1000) {
			c.TariffStored(s.ID, int64(1000*i+k+1))
		}
	}
	dropped := c.TariffsToDrop()
	if len(dropped) < 1000 || len(c.TariffsToDrop()) > 0 {
		t.Fatalf("%d are dropped", len(dropped))
	}
	s := c.Snapshot()
	admitted(t, s, "/chat299")
	for _, d := range dropped {
		if _, known := s.Tariff("api", "chat,"+d.ID); known || d.Revision > 15_000 {
			t.Fatalf("dropped, and known: %+v", d)
		}
	}
	c.ForgetStoredTariffs()
	left := c.TariffsToStore(10_000)
	bytes := 0
	for _, l := range left {
		bytes += len(l.ID) + len(l.Text)
	}
	if len(left)+len(dropped) != 6002 || bytes > plan.MaxTariffs {
		t.Errorf("%d are left with %d bytes, %d are dropped", len(left), bytes, len(dropped))
	}
}

// putAll puts the documents of texts, at one revision.
func putAll(tb testing.TB, c *plan.Catalog, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		docs, problems := plan.Decode("test.yaml", []byte(text))
		if plan.Refused(problems) {
			tb.Fatal(lines(problems))
		}
		for _, doc := range docs {
			c.Put(doc, 100)
		}
	}
}
