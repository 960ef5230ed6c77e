package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// pricedRoutes are routes of the app shop: n rules whose use is told by a header of their
// own, or by one of others.
func pricedRoutes(header string, n int, others string) string {
	var b strings.Builder
	b.WriteString("apiVersion: mete/v1\nkind: Routes\nmetadata: {name: shop}\nspec:\n  app: shop\n  rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: r%d, match: {path: /%d}, units: {requests: {use: [{response_header: %s-%d}%s]}}}\n", i, i, header, i, others)
	}
	return b.String()
}

// settledBy is the condition that requests to /0 are settled by a header, and returns how.
func settledBy(header string, settlement *string) func(*plan.Snapshot) bool {
	return func(s *plan.Snapshot) bool {
		r := s.Route("shop", "", "GET", "/0")
		if r == nil || len(r.Units) == 0 || r.Units[0].Use[0].Name != header+"-0" {
			return false
		}
		*settlement = s.Settlement(r)
		return true
	}
}

func knowsTariff(settlement string) func(*plan.Snapshot) bool {
	return func(s *plan.Snapshot) bool {
		t, known := s.Tariff("shop", settlement)
		return known && t.Units[0].Use[0].Name == "x-before-0"
	}
}

func storedTariffs(t *testing.T, c *clientv3.Client) (keys []string, bytes int) {
	t.Helper()
	r, err := c.Get(t.Context(), store.TariffsPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		keys, bytes = append(keys, string(kv.Key)), bytes+len(kv.Key)+len(kv.Value)
	}
	return keys, bytes
}

// What a request costs that an earlier version of a rule has admitted is known to a
// replica that was not there, and after a restart of all. What somebody spoils of it is
// mended, and what is none of it does no harm.
func TestTariffs_A41_RememberedByTheStore(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindRoutes, "shop"), pricedRoutes("x-before", 1, ""))
	put(t, c, store.TariffsPrefix+"AAAAAAAAAAAAAAAA", `{"later": "version"}`)
	first := startDocuments(t, c, zerolog.Nop())
	var before, after string
	first.until("the first version", settledBy("x-before", &before))
	_, id, _ := strings.Cut(before, ",")
	first.until("it is stored", func(*plan.Snapshot) bool { return get(t, c, store.TariffsPrefix+id) != "" })
	right := get(t, c, store.TariffsPrefix+id)
	put(t, c, store.TariffsPrefix+id, "spoiled")
	first.until("it is mended", func(*plan.Snapshot) bool { return get(t, c, store.TariffsPrefix+id) == right })
	put(t, c, store.DocumentKey(plan.KindRoutes, "shop"), pricedRoutes("x-after", 1, ""))
	first.until("the second version", settledBy("x-after", &after))
	if !knowsTariff(before)(first.Snapshot()) || before == after {
		t.Fatalf("%s is not known once it is %s", before, after)
	}
	first.stop()
	second := startDocuments(t, c, zerolog.Nop())
	second.until("known after a restart", knowsTariff(before))
	del(t, c, store.TariffsPrefix+id)
	second.until("stored again", func(*plan.Snapshot) bool { return get(t, c, store.TariffsPrefix+id) == right })
	if get(t, c, store.TariffsPrefix+"AAAAAAAAAAAAAAAA") == "" {
		t.Error("what a later version has stored is gone")
	}
}

// What is stored of rules that are gone is bounded in bytes.
func TestTariffs_A41_BoundedInTheStore(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	r := startDocuments(t, c, zerolog.Nop())
	var others strings.Builder
	for i := range 10 {
		fmt.Fprintf(&others, ", {response_header: x-%d%s}", i, strings.Repeat("l", 90))
	}
	var last string
	for i := range 6 {
		header := fmt.Sprint("x-", i)
		put(t, c, store.DocumentKey(plan.KindRoutes, "shop"), pricedRoutes(header, 180, others.String()))
		r.until("an edit", settledBy(header, &last))
	}
	_, id, _ := strings.Cut(last, ",")
	r.until("bounded", func(*plan.Snapshot) bool {
		keys, bytes := storedTariffs(t, c)
		return len(keys) > 500 && bytes < plan.MaxTariffs+len(keys)*len(store.TariffsPrefix) && get(t, c, store.TariffsPrefix+id) != ""
	})
}
