package e2e_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// A replica that is killed with kill -9 under load has used what it had not reported
// yet. Started again where it was it reports that: the account equals the requests
// that were answered, up to those that the kill took the answer of (A45, A47, P68).
func TestKilled_A45_A47_P68_RestartReportsToTheUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, unchanged)
	a := newApp(t, w, "monthly: {kind: quota, amount: 1000000, on_unavailable: deny, reset: {calendar: month}}")
	const callers = 4
	var served atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		b := *a
		b.sent = (i + 1) * 1_000_000
		all.Go(func() { // ends with the first request that mete gives no answer to
			for b.send(t, b.key).status == http.StatusOK {
				served.Add(1)
			}
		})
	}
	eventually(t, "300 requests are served", func() bool { return served.Load() >= 300 || t.Failed() })
	if err := w.mete.Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	old := w.mete
	if err := w.startMete(t.Context(), old.DataDir, "--grpc-listen", old.GRPC, "--etcd-listen", old.Etcd); err != nil {
		t.Fatal(err)
	}
	within := func(used int64) bool { return used >= served.Load() && used <= served.Load()+callers }
	eventually(t, "the account says what was served", func() bool { return within(a.account(t).Used()) })
	eventually(t, "the dead incarnation is settled", func() bool {
		liable, err := w.etcd.Get(t.Context(), store.LiablePrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && liable.Count == 1
	})
	a.await(t)
	a.admit(t, 1) // the next operation on the account closes the leases of the dead one
	if used, leased := a.usage(t); !within(used) || leased > 10 {
		t.Errorf("metectl says %d used and %d on lease; %d were served, and one first lease is of 10", used, leased, served.Load())
	}
}

// killed ends second with kill -9, and lets its liability run out, as etcd does after
// 30 minutes.
func (a *app) killed(t *testing.T, second *world) {
	t.Helper()
	err := second.mete.Kill()
	second.mete = nil // there is nothing left to stop
	if err != nil {
		t.Fatal(err)
	}
	holders := a.account(t).Holders
	if len(holders) != 1 {
		t.Fatalf("holders %+v, want the killed replica alone", holders)
	}
	if _, err := a.etcd.Delete(t.Context(), store.LiablePrefix+holders[0].ID); err != nil {
		t.Fatal(err)
	}
}

// A replica that is killed and not started again loses what it had not reported: that
// is never billed (A45), and its leases are handed out again as never used once its
// liability has run out (A33, A46). The quota is passed by no more than
// mete_overshoot_bound_units has said (Q40).
func TestKilled_A33_A45_A46_Q40_WithoutARestart(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	second := newReplica(t, first)
	a := newApp(t, first, "monthly: {kind: quota, amount: 100, on_unavailable: deny, reset: {calendar: month}}")
	b := a.on(t, second)
	b.admit(t, 5)
	bound := second.metric(t, `mete_overshoot_bound_units{app="`+a.name+`",limit="monthly"}`)
	reported := int(a.account(t).Used())
	a.killed(t, second)
	served, _ := a.unitsWhile(t)
	if served != 100-reported {
		t.Errorf("%d units are served after the kill, want the 100 less the %d that were reported", served, reported)
	}
	if over := 5 + served - 100; over < 1 || over > bound {
		t.Errorf("%d units past the quota, want some, and no more than the bound said: %d", over, bound)
	}
	if used := a.account(t); used.Used()+used.Leased() > 100 {
		t.Errorf("%d are billed or on lease, want 100 at most", used.Used()+used.Leased())
	}
}

// With exact_below: 100% every request is in the account before it is let on, and the
// units are out for that request alone. So a replica that is killed, and is not
// started again, takes nobody past the quota, also when its liability has run out
// (Q45).
func TestExact_Q45_AKilledReplicaTakesNobodyOver(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	second := newReplica(t, first)
	a := newApp(t, first, "monthly: {kind: quota, amount: 50, on_unavailable: deny, reset: {calendar: month}, lease: {exact_below: 100%}}")
	b := a.on(t, second)
	for i := range int64(20) {
		b.admit(t, 1)
		if now := b.account(t); now.Leased() > 1 || now.Used()+now.Leased() != i+1 {
			t.Fatalf("after %d requests %d are used and %d on lease, want all of them there and only one on lease", i+1, now.Used(), now.Leased())
		}
	}
	a.killed(t, second)
	if got := a.burst(t, first, 45); got != 30 {
		t.Errorf("20 of 50 units were served before the kill and %d after it, want 30", got)
	}
	if now := a.account(t); now.Used()+now.Leased() != 50 || len(now.Holders) != 1 {
		t.Errorf("account %+v, want 50 units used and the killed replica gone", now)
	}
}
