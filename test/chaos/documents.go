package main

import (
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

const (
	appName   = "chaos"
	limitName = "yearly"
	probe     = "org:probe" // the tenant that reports whether documents are in force
)

// Documents of every world: requests for /2 and so on are of so many units.
const (
	appText = "{apiVersion: mete/v1, kind: App, metadata: {name: chaos}, spec: {time_zone: UTC, " +
		"identity: {tenant: [{api_key: x-api-key}, {request_header: x-tenant}]}}}"

	routesText = "{apiVersion: mete/v1, kind: Routes, metadata: {name: chaos}, spec: {app: chaos, rules: [" +
		"{name: two, match: {path: /2}, weight: 2}, {name: three, match: {path: /3}, weight: 3}, {name: seven, match: {path: /7}, weight: 7}]}}"
)

// A planDoc is a plan with one quota, and the tenants that have it. The quota
// refuses when etcd is away, so that what it lets on is exact.
type planDoc struct {
	name    string
	amount  int64
	lease   string // the fields of lease, if any
	tenants []string
}

// put returns the write of the plan. Note is a comment in it that means nothing.
func (p planDoc) put(note string) clientv3.Op {
	lease := ""
	if p.lease != "" {
		lease = ", lease: {" + p.lease + "}"
	}
	return clientv3.OpPut(store.DocumentKey(plan.KindPlan, p.name), fmt.Sprintf(
		"# %s\n{apiVersion: mete/v1, kind: Plan, metadata: {name: %s}, spec: {limits: {%s: "+
			"{kind: quota, amount: %d, on_unavailable: deny, reset: {calendar: year}%s}}}}\n", note, p.name, limitName, p.amount, lease))
}

// documents returns the writes of everything. They are for one transaction: what is
// applied together is judged together.
func documents(plans []planDoc) []clientv3.Op {
	ops := []clientv3.Op{
		clientv3.OpPut(store.DocumentKey(plan.KindApp, appName), appText),
		clientv3.OpPut(store.DocumentKey(plan.KindRoutes, appName), routesText),
	}
	for _, p := range append(plans, planDoc{name: "probe", amount: 1_000_000, tenants: []string{probe}}) {
		ops = append(ops, p.put("first"))
		for _, t := range p.tenants {
			ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindTenant, t),
				fmt.Sprintf("{apiVersion: mete/v1, kind: Tenant, metadata: {name: %q}, spec: {plan: %s}}", t, p.name)))
		}
	}
	return ops
}

// tenantsOf names n tenants.
func tenantsOf(kind string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("org:%s-%d", kind, i))
	}
	return names
}
