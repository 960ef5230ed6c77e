package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

// on_unavailable: {allow: {units: 3}} lets on three requests while etcd is away and
// then denies (P44). The metrics tell of it, and that etcd is away (P74). Once it is
// back all three are counted (A58), without a restart.
func TestCap_P44_P74_A58_ThreeUnitsThenDeny(t *testing.T) {
	t.Parallel()
	store := newWorld(t, nil, unchanged)
	w := newReplica(t, store, defaultWaits()...)
	a := newApp(t, w, "monthly: {kind: quota, amount: 100, reset: {calendar: month}, on_unavailable: {allow: {units: 3}}, lease: {report_every: 1s}}", "headers: {x_quota: true}")
	if up := w.metric(t, "mete_store_up"); up != 1 {
		t.Errorf("mete_store_up %d while etcd answers", up)
	}
	if err := store.mete.Stop(); err != nil {
		t.Fatal(err)
	}
	a.admit(t, 3)
	for range 2 {
		if body := a.refuse(t, http.StatusServiceUnavailable).refusal(t); body.Error != "quota_unavailable" {
			t.Errorf("past the cap: %q, want quota_unavailable", body.Error)
		}
	}
	for series, want := range map[string]int{
		"mete_unavailable_units_total":                                          3,
		`mete_unavailable_decisions_total{app="` + a.name + `",choice="allow"}`: 3,
		`mete_unavailable_decisions_total{app="` + a.name + `",choice="deny"}`:  2,
	} {
		if got := w.metric(t, series); got != want {
			t.Errorf("%s %d, want %d", series, got, want)
		}
	}
	eventually(t, "mete says that etcd is away", func() bool { return w.metric(t, "mete_store_up") == 0 })

	old := store.mete
	if err := store.startMete(t.Context(), old.DataDir, "--grpc-listen", old.GRPC, "--etcd-listen", old.Etcd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was let on is counted", func() bool { return a.account(t).Used() == 3 })
	eventually(t, "mete says that etcd is back", func() bool { return w.metric(t, "mete_store_up") == 1 })
	wantHeader(t, a.admit(t, 1), "X-Quota-Used", "4")
	if n := w.metric(t, `mete_usage_dropped_units_total{reason="held"}`); n != 0 {
		t.Errorf("%d units are dropped, want none", n)
	}
}

// While etcd hangs, a request of an ordinary limit is decided after 300 ms, and is let
// on and counted as such (C20); one of a limit that has a longer patience and fails
// closed goes on waiting, and is served once etcd answers (C21).
func TestPatience_C20_C21_EachLimitHasItsOwn(t *testing.T) {
	t.Parallel()
	store := newWorld(t, nil, unchanged)
	w := newReplica(t, store, defaultWaits()...)
	patient := newApp(t, w, "bytes: {kind: quota, amount: 100, reset: {calendar: month}, on_unavailable: deny, lease: {wait: 20s}}")
	hasty := newApp(t, w, "monthly: {kind: quota, amount: 100, reset: {calendar: month}}")
	if err := store.mete.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if err := store.mete.Resume(); err != nil && !resumed {
			t.Error(err)
		}
		resumed = true
	}
	defer resume() // one that stands still cannot be stopped

	answer := make(chan *reply, 1)
	go func() {
		var r *reply // stays nil if it cannot be sent
		defer func() { answer <- r }()
		r = patient.send(t, patient.key)
	}()
	eventually(t, "a request waits", func() bool { return w.metric(t, `mete_purses{state="in_flight"}`) == 1 })
	hasty.admit(t, 1)
	if n := w.metric(t, `mete_unavailable_decisions_total{app="`+hasty.name+`",choice="allow"}`); n != 1 {
		t.Errorf("%d requests are counted as let on, want 1", n)
	}
	select {
	case r := <-answer:
		t.Fatalf("the patient limit answers %+v while etcd hangs", r)
	default:
	}
	resume()
	if r := <-answer; r == nil || r.status != http.StatusOK || len(r.seen) != 1 {
		t.Errorf("the patient limit answers %+v once etcd does, want 200", r)
	}
	if _, text := w.page(t, "/metrics"); strings.Contains(text, `mete_unavailable_decisions_total{app="`+patient.name+`",choice="deny"} 1`) {
		t.Error("the patient limit has denied a request")
	}
}
