package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// TestReplicas: split limits are shared out over the replicas there are, and a
// replica whose liable key is lost goes on under a new incarnation.
func TestReplicas(t *testing.T) {
	defer goleak.VerifyNone(t)
	first := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := first.addresses(t)
	second := start(t, "--etcd-endpoints=http://"+a.Etcd, "--drain-delay=0")
	b := second.addresses(t)
	etcd, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	putDocuments(t, etcd)
	conn := connect(t, b.GRPC)
	for _, addr := range []string{a.Metrics, b.Metrics} {
		eventually(t, "the other replica", func() bool {
			_, body := get(t, "http://"+addr+"/metrics")
			return strings.Contains(body, "mete_replicas 2\n")
		})
	}
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:split") })
	admitted := 1
	for admitted < 20 && admits(t, conn, "org:split") {
		admitted++
	}
	if admitted != 5 {
		t.Errorf("one of two replicas admits %d of 10", admitted)
	}

	before := incarnationOf(t, b)
	if _, err := etcd.Delete(t.Context(), store.LiablePrefix+before); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new incarnation", func() bool {
		now := incarnationOf(t, b)
		keys, err := etcd.Get(t.Context(), store.LiablePrefix+now)
		return now != before && err == nil && len(keys.Kvs) == 1
	})
	eventually(t, "a lease of the new incarnation", func() bool {
		admits(t, conn, "org:acme")
		_, body := get(t, "http://"+b.Metrics+"/metrics")
		return strings.Contains(body, `mete_lease_requests_total{result="granted"} 1`)
	})
	_, _ = conn.Close(), etcd.Close()
	for _, r := range []*running{second, first} {
		if err := r.stop(t); err != nil {
			t.Errorf("%v\n%s", err, r.log)
		}
	}
}

func incarnationOf(t *testing.T, a addresses) string {
	t.Helper()
	var s status
	if _, body := get(t, "http://"+a.Admin+"/v1/status"); json.Unmarshal([]byte(body), &s) != nil {
		t.Fatalf("status: %s", body)
	}
	return s.Incarnation
}

func putDocuments(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	var puts []clientv3.Op // in one transaction: a tenant before its plan would be let on as if etcd were away
	for key, text := range map[string]string{
		store.DocumentKey(plan.KindApp, "api"): "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\n" +
			"spec: {time_zone: Pacific/Kiritimati, identity: {tenant: [{request_header: x-org}]}}\n",
		store.DocumentKey(plan.KindPlan, "free"): "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: free}\n" +
			"spec: {limits: {monthly: {kind: quota, amount: 1000, reset: {calendar: month}}}}\n",
		store.DocumentKey(plan.KindTenant, "org:acme"): "apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"org:acme\"}\nspec: {plan: free}\n",
		store.DocumentKey(plan.KindPlan, "split"): "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: split}\n" +
			"spec: {limits: {hourly: {kind: rate, amount: 10, window: 1h, replicas: split}}}\n",
		store.DocumentKey(plan.KindTenant, "org:split"): "apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"org:split\"}\nspec: {plan: split}\n",
		store.DocumentKey(plan.KindPlan, "bad"):         "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: bad}\nspec: {limmits: {}}\n",
	} {
		puts = append(puts, clientv3.OpPut(key, text))
	}
	if _, err := etcd.Txn(t.Context()).Then(puts...).Commit(); err != nil {
		t.Fatal(err)
	}
}

// checkAccount looks at the only account there is.
func (r *running) checkAccount(t *testing.T, want int64) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: r.dir, ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Client().Get(t.Context(), store.AccountsPrefix, clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%d accounts, %v", len(got.Kvs), err)
	}
	var account metev1.Account
	if err := proto.Unmarshal(got.Kvs[0].Value, &account); err != nil {
		t.Fatal(err)
	}
	used := account.GetBase()
	for _, h := range account.GetHolders() {
		used += h.GetUsed()
		if len(h.GetLeases()) > 0 {
			t.Errorf("still out on lease: %v", h)
		}
	}
	if used != want {
		t.Errorf("used %d, want %d: %v", used, want, &account)
	}
}
