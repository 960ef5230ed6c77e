package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/test/rig"
)

// An outcome is a kind of request whose end is known before it is sent. Each has a
// tenant of its own, so that what an account is off by tells of how many requests.
type outcome struct {
	name           string
	path           string
	act, use       string // what the API does, and says was used
	status         int    // that callers are sent
	result         string // of its settlement in mete_settlements_total; no two outcomes share one
	reserved, used int64
}

func outcomes() []outcome {
	return []outcome{
		{"weight 5, answered 200", "/five", rig.ActStatus + "200", "", 200, "as_reserved", 5, 5},
		{"weight 5, answered 500", "/five", rig.ActStatus + "500", "", 500, "free", 5, 0},
		{"100 reserved, 7 used", "/hundred", rig.ActStatus + "200", "7", 200, "less", 100, 7},
		{"10 reserved, 25 used", "/ten", rig.ActStatus + "200", "25", 200, "more", 10, 25},
	}
}

const outcomesRoutes = "{apiVersion: mete/v1, kind: Routes, metadata: {name: outcomes}, spec: {app: chaos, rules: [" +
	"{name: five, match: {path: /five}, weight: 5}, " +
	"{name: hundred, match: {path: /hundred}, units: {requests: {reserve: 100, use: [{response_header: x-usage-units}]}}}, " +
	"{name: ten, match: {path: /ten}, units: {requests: {reserve: 10, use: [{response_header: x-usage-units}]}}}]}}"

func (o *outcome) tenant() string { return "org:" + o.result }

func (o *outcome) key() string { return "mk_chaos_" + o.result }

// outcomesPlan is the plan of all outcomes' tenants: nobody is ever refused by it, and
// what is used is reported every second.
func outcomesPlan() planDoc {
	p := planDoc{name: "pro", amount: 1_000_000_000, lease: "report_every: 1s"}
	for _, o := range outcomes() {
		p.tenants = append(p.tenants, o.tenant())
	}
	return p
}

// outcomesDocuments are the writes of what outcomes need beside their plan.
func outcomesDocuments() []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpPut(store.DocumentKey(plan.KindRoutes, "outcomes"), outcomesRoutes)}
	for _, o := range outcomes() {
		hash := sha256.Sum256([]byte(o.key()))
		name := hex.EncodeToString(hash[:])
		ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindCredential, name),
			fmt.Sprintf("{apiVersion: mete/v1, kind: Credential, metadata: {name: %q}, spec: {tenant: %q}}", name, o.tenant())))
	}
	return ops
}

// A bill is the truth about the requests of one outcome.
type bill struct {
	outcome

	answered    atomic.Int64 // by the API: mete has let them on, and Envoy writes an entry that tells so
	unavailable atomic.Int64 // 503: mete has not let them on, or Envoy has not heard that it did
	others      atomic.Int64 // anything else, which nothing here explains
}

func newBills() []*bill {
	var all []*bill
	for _, o := range outcomes() {
		all = append(all, &bill{outcome: o})
	}
	return all
}

// An explanation is what an account says, and what of it is other than the truth.
type explanation struct {
	bill                 *bill
	account, off         int64 // units
	unsettled, unheardOf int64 // requests that explain what it is off by
}

// explain finds out why the account is off: a request that is not settled counts as
// it was reserved, and so does one of whose check Envoy never heard the answer, of which there
// are no more than so many. Where several numbers of them explain it, the fewest are not
// settled. An error if none do.
func (b *bill) explain(account, mostUnheard int64) (explanation, error) {
	answered := b.answered.Load()
	e := explanation{bill: b, account: account, off: account - answered*b.used}
	for ; e.unsettled <= answered; e.unsettled++ {
		rest := e.off - e.unsettled*(b.reserved-b.used)
		if e.unheardOf = rest / b.reserved; rest%b.reserved == 0 && e.unheardOf >= 0 && e.unheardOf <= mostUnheard {
			return e, nil
		}
	}
	e.unsettled, e.unheardOf = 0, 0
	return e, fmt.Errorf("%s: %d requests used %d units, the account says %d: the difference of %d is not a number of requests that count as they were reserved",
		b.name, answered, answered*b.used, account, e.off)
}

// explainAll explains every bill's account, by tenant. Unheard is the most requests in
// all of whose check Envoy may not have heard the answer.
func explainAll(bills []*bill, used map[string]int64, unheard int64) (all []explanation, errs []error) {
	left := unheard
	for _, b := range bills {
		e, err := b.explain(used[b.tenant()], min(unheard, b.unavailable.Load()))
		if err != nil {
			errs = append(errs, err)
		}
		if n := b.others.Load(); n > 0 {
			errs = append(errs, fmt.Errorf("%s: %d requests ended in another way", b.name, n))
		}
		all, left = append(all, e), left-e.unheardOf
	}
	if left < 0 {
		errs = append(errs, fmt.Errorf("%d requests would have been let on without Envoy's hearing of it, %d at most were", unheard-left, unheard))
	}
	return all, errs
}

// table shows explanations, a line each.
func table(all []explanation) string {
	var b strings.Builder
	row := func(cells ...any) { fmt.Fprintf(&b, "\n    %-24s %8v %6v %9v %9v %8v %9v %10v", cells...) }
	row("", "answered", "503", "used", "account", "off by", "unsettled", "unheard of")
	for _, e := range all {
		n := e.bill.answered.Load()
		row(e.bill.name, n, e.bill.unavailable.Load(), n*e.bill.used, e.account, e.off, e.unsettled, e.unheardOf)
	}
	return b.String()
}
