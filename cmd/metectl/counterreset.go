package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A resetRequest is what is to be reset: a counter of a domain, or quotas of a tenant.
type resetRequest struct {
	domain, text, unit string
	tenant, app, limit string
	yes                bool
}

func (r resetRequest) what() string {
	if r.tenant != "" {
		return "cannot reset " + r.tenant
	}
	return "cannot reset " + r.text + " of " + r.domain
}

// A counterTarget is a counter, or a tenant, with its limits in the running windows.
type counterTarget struct {
	root, tenant string // of its accounts
	limits       []counterView
	accounts     []string // that the limits count in; "" of a bucket
}

// keys are the accounts of a target.
func (t *counterTarget) keys() []quota.Key {
	var keys []quota.Key
	for i, v := range t.limits {
		if t.accounts[i] != "" {
			keys = append(keys, quota.Key{Root: t.root, Tenant: t.tenant, Limit: t.accounts[i], Window: v.Window.ID})
		}
	}
	return keys
}

func (t *counterTarget) add(account string, v counterView) {
	t.limits, t.accounts = append(t.limits, v), append(t.accounts, account)
}

func (c *cli) reset(ctx context.Context, r resetRequest) error {
	if err := r.check(); err != nil {
		return err
	}
	var t *counterTarget
	err := c.withStore(ctx, r.what(), func(ctx context.Context, client *clientv3.Client) (err error) {
		if err := mayWrite(ctx, client); err != nil {
			return err
		}
		t, err = r.find(ctx, client, c.now())
		return err
	})
	if err != nil {
		return err
	}
	// The question is asked between two connections: --timeout is not for people.
	if err := c.confirmReset(t, r.yes); err != nil {
		return err
	}
	report := clearReport{Domain: r.domain, Cleared: []clearedView{}}
	err = c.withStore(ctx, r.what(), func(ctx context.Context, client *clientv3.Client) error {
		t, err := r.find(ctx, client, c.now()) // a window may have ended meanwhile
		if err != nil {
			return err
		}
		done, revision, err := store.ClearAccounts(ctx, client, t.tenant, t.keys())
		report.Cleared, report.Revision = t.cleared(done), revision
		return resetError(r.what(), len(done), err)
	})
	if err != nil {
		return err
	}
	c.tellReset(report)
	return c.writeAs(report, report.table())
}

// check finds what is wrong with the flags.
func (r resetRequest) check() error {
	switch {
	case r.tenant != "" && r.unit != "":
		return usageError("--unit goes with a descriptor", "name a quota of the tenant with --limit")
	case r.tenant == "" && r.limit != "":
		return usageError("--limit goes with --tenant", "choose among the limits of a descriptor with --unit")
	case r.unit != "" && unitOf(r.unit) == 0:
		return usageError(fmt.Sprintf("--unit %q is not a unit", r.unit), "use second, minute, hour, day, week, month or year")
	}
	return nil
}

// unitOf reads a unit; 0: there is none of that name.
func unitOf(word string) plan.DescriptorUnit {
	for u := plan.UnitSecond; u <= plan.UnitYear; u++ {
		if u.String() == word {
			return u
		}
	}
	return 0
}

// find finds what the request means.
func (r resetRequest) find(ctx context.Context, client *clientv3.Client, now time.Time) (*counterTarget, error) {
	if r.tenant == "" {
		t, err := findCounter(ctx, client, r.what(), now, r.domain, r.text)
		if err != nil {
			return nil, err
		}
		return t.only(r)
	}
	root, quotas, err := tenantQuotas(ctx, client, now, r.tenant, r.app)
	if err != nil {
		return nil, err
	}
	t := &counterTarget{root: root}
	for _, v := range quotas {
		if r.limit == "" || r.limit == v.Name {
			t.tenant = v.Key
			t.add(v.Name, v)
		}
	}
	if len(t.limits) == 0 {
		why := "it has no quota"
		if r.limit != "" {
			why = "it has no quota " + r.limit
		}
		return nil, &failure{code: exitNotFound, what: r.what(), why: why, next: "metectl counter ls --tenant " + r.tenant + " lists its quotas; rates live in the replicas and refill by themselves"}
	}
	return t, nil
}

// findCounter finds the counter of a descriptor with all that counts in it: what has been
// used in the running windows, and the limit of the rule, used or not.
func findCounter(ctx context.Context, client *clientv3.Client, what string, now time.Time, domain, text string) (*counterTarget, error) {
	entries, err := parseDescriptor(text)
	if err != nil {
		return nil, err
	}
	d, err := loadDomain(ctx, client, what, domain)
	if err != nil {
		return nil, err
	}
	name, m := counterOf(d.Table, entries)
	t := &counterTarget{tenant: authz.CounterTenant(name)}
	t.root = t.tenant
	found, err := store.NewAccounts(client).ListOf(ctx, t.root, t.tenant)
	if err != nil {
		return nil, err
	}
	r := counterReport{}
	ruled := false
	for _, e := range found {
		n := len(r.Counters)
		if r.add(d, now, e); len(r.Counters) > n {
			v := r.Counters[n]
			v.Descriptor = nameText(d.Table, name)
			t.add(e.Key.Limit, v)
			ruled = ruled || m != nil && m.Account == e.Key.Limit
		}
	}
	if m != nil && m.Limit != nil && !ruled {
		t.addRule(nameText(d.Table, name), m, now)
	}
	if len(t.limits) == 0 {
		return nil, &failure{code: exitNotFound, what: what, why: "no rule limits it, and nothing of it has been counted in the running windows", next: "metectl counter ls " + domain + " lists the counters"}
	}
	return t, nil
}

// addRule adds the limit of a rule that nothing has been counted of.
func (t *counterTarget) addRule(text string, m *plan.DescriptorMatch, now time.Time) {
	key := quota.Key{Root: t.root, Tenant: t.tenant, Limit: m.Account}
	v := viewCounter(text, key, m.Limit, quota.Account{}, now)
	if m.Limit.Kind == plan.Quota {
		t.add(m.Account, v)
	} else {
		t.add("", v)
	}
}

// nameText is the text of a counter's whole name.
func nameText(table *plan.DescriptorTable, name string) string {
	entries, _, _ := table.Counter(name)
	return descriptorText(entries)
}

// only leaves the limits of the unit that is asked for.
func (t *counterTarget) only(r resetRequest) (*counterTarget, error) {
	if r.unit == "" {
		return t, nil
	}
	some := &counterTarget{root: t.root, tenant: t.tenant}
	for i, v := range t.limits {
		if l, ok := plan.ParseAccount("ratelimit:" + v.Name); ok && l.Unit == unitOf(r.unit) {
			some.add(t.accounts[i], v)
		}
	}
	if len(some.limits) == 0 {
		return nil, &failure{
			code: exitNotFound, what: r.what(), why: "it has no limit per " + r.unit + ", only " + strings.Join(t.names(), ", "),
			next: "leave out --unit, or name the right one",
		}
	}
	return some, nil
}

func (t *counterTarget) names() []string {
	var names []string
	for _, v := range t.limits {
		names = append(names, v.Name)
	}
	return names
}

// confirmReset asks on a terminal, and wants --yes elsewhere.
func (c *cli) confirmReset(t *counterTarget, yes bool) error {
	if yes {
		return nil
	}
	counter := t.limits[0].Descriptor
	if !isTerminal(c.stdin) {
		return needsYes("resetting "+counter+" wants a yes", "add --yes; nothing was reset")
	}
	var parts []string
	for _, v := range t.limits {
		parts = append(parts, v.told())
	}
	return c.ask("reset "+counter+": "+strings.Join(parts, ", ")+"?", "nothing was reset")
}

// told says how a limit stands: per_hour, used 120 of 1,000.
func (v *counterView) told() string {
	switch {
	case v.Used == nil:
		return v.Name + " (" + v.pace + ")"
	case v.Amount == nil:
		return v.Name + ", used " + grouped(*v.Used)
	}
	return v.Name + ", used " + grouped(*v.Used) + " of " + grouped(*v.Amount)
}

// cleared tells of each limit what was forgotten.
func (t *counterTarget) cleared(done []store.Cleared) []clearedView {
	views := []clearedView{}
	for i, v := range t.limits {
		c := clearedView{Descriptor: v.Descriptor, Name: v.Name, Window: v.Window}
		if t.accounts[i] != "" {
			c.Used = new(int64)
		}
		for _, d := range done {
			if d.Key.Limit == t.accounts[i] {
				*c.Used = d.Used
			}
		}
		views = append(views, c)
	}
	return views
}

// resetError tells what a reset that did not happen, or not wholly, means.
func resetError(what string, done int, err error) error {
	switch {
	case err == nil:
		return nil
	case done > 0:
		return &failure{code: exitPartly, what: "not all was reset", why: err.Error(), next: "reset it again: what was reset is not lost by that"}
	case errors.Is(err, store.ErrChanged):
		return &failure{code: exitConflict, what: what, why: "replicas have changed it each time that it was tried", next: "try again; --timeout allows more time"}
	}
	return conflict(err)
}

// tellReset says in words what happened.
func (c *cli) tellReset(r clearReport) {
	for _, v := range r.Cleared {
		switch {
		case v.Used == nil:
			c.say("%s: the bucket of %s is full again on every replica", v.Descriptor, v.Name)
		case *v.Used == 0:
			c.say("%s: nothing was used of %s", v.Descriptor, v.Name)
		default:
			c.say("%s: %s used of %s are forgotten; its window ends at %s as before", v.Descriptor, grouped(*v.Used), v.Name, v.Window.End.Format("2006-01-02 15:04Z"))
		}
	}
	c.say("replicas hear of it in a moment; what they had used and not reported yet counts from here on")
}
