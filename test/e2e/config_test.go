package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A document with a key that is there twice is refused with its path, told once for
// each revision and counted, and the one before it stays in force without a gap, its
// counters too (case C001).
func TestBadEdit_C001_LastGoodStays(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 1000, window: 1h}")
	left := 1000
	admit := func() {
		t.Helper()
		r := a.admit(t, 1)
		wantHeader(t, r, "RateLimit-Policy", `"hourly";q=1000;w=3600`)
		now, err := strconv.Atoi(strings.TrimPrefix(strings.Split(r.header.Get("RateLimit"), ";")[1], "r="))
		if err != nil || now > left {
			t.Fatalf("RateLimit = %q after %d left: the bucket is another one", r.header.Get("RateLimit"), left)
		}
		left = now
	}
	told := func() (lines []string) {
		for line := range strings.Lines(a.mete.Log()) {
			if strings.Contains(line, `"`+a.name+`"`) && strings.Contains(line, "is written twice") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	admit()
	for revision := 1; revision <= 2; revision++ {
		amount := strconv.Itoa(revision)
		a.put(t, map[string]string{"plans/" + a.name: a.plan("hourly: {kind: rate, amount: " + amount + ", window: 1h}\nhourly: {kind: rate, amount: 9, window: 1h}")})
		for began := time.Now(); len(told()) < revision; admit() {
			if time.Since(began) > patienceOfTests {
				t.Fatalf("revision %d is not told; mete says\n%s", revision, a.mete.Log())
			}
		}
		for range 50 {
			admit()
		}
	}
	lines := told()
	if len(lines) != 2 || !strings.Contains(lines[0], "spec.limits.hourly: is written twice") {
		t.Errorf("two bad revisions are told %d times:\n%s", len(lines), strings.Join(lines, ""))
	}
	if _, text := a.page(t, "/metrics"); !strings.Contains(text, `mete_config_rejected_documents{kind="Plan"} `) || strings.Contains(text, `mete_config_rejected_documents{kind="Plan"} 0`) {
		t.Error("no rejected Plan is counted")
	}
}

// Twenty edits a second while requests come: none of them is lost, and none is
// decided under a version older than the one before it was (case C148).
func TestEdits_C148_UnderLoad(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 1000001, window: 1h}")
	version := func(v int) map[string]string {
		return map[string]string{
			"plans/" + a.name:  a.plan("hourly: {kind: rate, amount: " + strconv.Itoa(1_000_000+v) + ", window: 1h}"),
			"routes/" + a.name: document("Routes", a.name, "  app: "+a.name+"\n  rules: [{name: v"+strconv.Itoa(v)+", match: {path_prefix: /}, weight: "+strconv.Itoa(v)+"}]"),
		}
	}
	const last = 40
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second / 20)
		defer tick.Stop()
		for v := 2; v <= last && !t.Failed(); v++ {
			<-tick.C
			a.put(t, version(v))
		}
	}()
	want := `"hourly";q=` + strconv.Itoa(1_000_000+last) + ";w=3600"
	newest := want[:0]
	eventually(t, "the last edit is in force", func() bool {
		policy := a.admit(t, 1).header.Get("RateLimit-Policy")
		if len(policy) != len(want) || policy < newest {
			t.Fatalf("RateLimit-Policy = %q after %q", policy, newest)
		}
		newest = policy
		return policy == want
	})
	<-done
}

// What happens when units run out is the limit's to say (A5): no more, a grace band
// and then no more, or counted and let on. Tenants of one plan are counted each for
// itself (R10), and who has no plan has no limit (R13).
func TestUsedUp_A5_R10_R13(t *testing.T) {
	t.Parallel()
	grace := newApp(t, shared(t), "monthly: {kind: quota, amount: 10, reset: {calendar: month}, when_used_up: {grace: 20%}}", "headers: {x_quota: true}")
	r := grace.admit(t, 12)
	wantHeader(t, r, "X-Quota-Used", "12")
	wantHeader(t, r, "X-Quota-Remaining", "0")
	grace.refuse(t, http.StatusTooManyRequests)

	counts := newApp(t, shared(t), "monthly: {kind: quota, amount: 1, reset: {calendar: month}, when_used_up: count}", "headers: {x_quota: true}")
	wantHeader(t, counts.admit(t, 5), "X-Quota-Used", "5")

	denies := newApp(t, shared(t), "monthly: {kind: quota, amount: 1, reset: {calendar: month}}")
	denies.admit(t, 1)
	denies.refuse(t, http.StatusTooManyRequests)
	other := *denies
	other.tenant, other.key, other.sent = denies.tenant+"-other", denies.key+"_other", 1000
	other.put(t, map[string]string{
		"tenants/" + other.tenant:        document("Tenant", other.tenant, "  plan: "+denies.name),
		"credentials/" + hash(other.key): document("Credential", hash(other.key), "  tenant: "+other.tenant),
	})
	denies.awaitRoutes(t)
	other.admit(t, 1)
	other.refuse(t, http.StatusTooManyRequests)
	for range 5 {
		if r := denies.send(t, denies.probe); r.status != http.StatusOK || r.header.Get("RateLimit") != "" {
			t.Errorf("without a plan: %d %v", r.status, r.header)
		}
	}
}

// Anonymous callers have no limit where the App lets them on (R14).
func TestAnonymous_R14_NoLimit(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 1, window: 1h}")
	app := document("App", a.name, "  time_zone: Europe/Berlin\n  envoy: {hosts: ["+a.host+"]}\n  identity: {tenant: [{api_key: x-api-key}], without_tenant: allow}")
	a.put(t, map[string]string{"apps/" + a.name: app})
	a.awaitRoutes(t)
	for range 5 {
		r := a.sendTo(t, a.ingress.Listener("ingress"), "X-Mete-Tenant: "+a.tenant)
		if r.status != http.StatusOK || len(r.seen) != 1 || r.header.Get("RateLimit") != "" || r.seen[0].Header.Get("X-Mete-Tenant") != "" {
			t.Errorf("got %d %v, the API saw %v; want 200 without limits or a tenant", r.status, r.header, r.seen)
		}
	}
	a.admit(t, 1)
	a.refuse(t, http.StatusTooManyRequests)
	if r := a.send(t, "mk_bad"); r.status != http.StatusUnauthorized {
		t.Errorf("a bad key is not anonymous: got %d", r.status)
	}
}

// A tenant that is first seen is counted from its first request on (R29, R30), and
// the time zone of its App is fixed from then on (A18).
func TestFirstSeen_R29_R30_A18(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 2, reset: {calendar: month}}", "headers: {x_quota: true}")
	wantHeader(t, a.admit(t, 1), "X-Quota-Used", "1")
	reset := a.admit(t, 1).header.Get("X-Quota-Reset")
	a.refuse(t, http.StatusTooManyRequests)
	eventually(t, "use is on record", func() bool {
		used, err := a.etcd.Get(t.Context(), "/mete/v1/state/used/"+a.name)
		if err != nil {
			t.Fatal(err)
		}
		return used.Count == 1
	})
	a.put(t, map[string]string{"apps/" + a.name: document("App", a.name, "  time_zone: Asia/Tokyo\n  envoy: {hosts: ["+a.host+"]}\n  headers: {x_quota: true}\n  identity: {tenant: [{api_key: x-api-key}]}")})
	eventually(t, "the other time zone is refused", func() bool {
		status, err := a.etcd.Get(t.Context(), "/mete/v1/status/apps/"+a.name)
		if err != nil {
			t.Fatal(err)
		}
		return status.Count == 1 && strings.Contains(string(status.Kvs[0].Value), "time_zone")
	})
	wantHeader(t, a.refuse(t, http.StatusTooManyRequests), "X-Quota-Reset", reset)
}
