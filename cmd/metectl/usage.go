package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

func (c *cli) usageCommand() *cobra.Command {
	var app string
	var path bool
	cmd := &cobra.Command{
		Use:   "usage TENANT",
		Short: "Show what a tenant has used of its limits",
		Long: `Show what a tenant has used of its limits. Reading costs nothing and opens no window.

LEASED are units that replicas hold to spend without asking; they count as neither used nor
left. Rate limits show no use: their buckets live in the replicas.`,
		Example: "  metectl usage org:acme\n  metectl usage project:acme-prod --path -o json",
		Args:    exactly(1, 1, "one tenant"),

		ValidArgsFunction: c.completeNames(plan.KindTenant),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.usage(cmd.Context(), args[0], app, path)
		},
	}
	cmd.Flags().StringVar(&app, "app", "", "`app` whose limits are shown; those of all apps that know the tenant if left out")
	c.completeFlag(cmd, "app", plan.KindApp)
	cmd.Flags().BoolVar(&path, "path", false, "show the limits of its ancestors that its requests are charged to, too")
	return cmd
}

func (c *cli) usage(ctx context.Context, tenant, app string, path bool) error {
	if c.output == "name" {
		return usageError("-o name does not go with usage", "use -o table, json or yaml")
	}
	now := c.now()
	r := usageReport{Tenant: tenant, Limits: []usageLimit{}}
	err := c.withStore(ctx, "cannot read the usage of "+tenant, func(ctx context.Context, client *clientv3.Client) error {
		catalog, _, err := store.LoadCatalog(ctx, client)
		if err != nil {
			return err
		}
		all, err := appTerms(catalog.Snapshot(), now, tenant, app)
		if err != nil {
			return err
		}
		several := app == "" && len(catalog.Snapshot().Names(plan.KindApp)) > 1
		return r.read(ctx, client, now, all, several, path)
	})
	if err != nil {
		return err
	}
	if len(r.Limits) == 0 && c.output == "table" {
		c.say("%s has no limits", tenant)
		return nil
	}
	return c.writeAs(r, r.table(now))
}

// read adds the limits of each of some apps, with the app's name if there are several.
func (r *usageReport) read(ctx context.Context, client *clientv3.Client, now time.Time, apps []plan.Terms, several, path bool) error {
	for _, terms := range apps {
		limits, err := usageLimits(ctx, store.NewAccounts(client), now, terms, path)
		if err != nil {
			return err
		}
		for i := range limits {
			if several {
				limits[i].App = terms.App.Name
			}
		}
		r.Limits = append(r.Limits, limits...)
	}
	return nil
}

// appTerms returns what holds for the tenant in an app, or with none in each app that
// knows it. An error says why there is none.
func appTerms(s *plan.Snapshot, now time.Time, tenant, app string) ([]plan.Terms, error) {
	apps := s.Names(plan.KindApp)
	if t := s.Tenant(tenant); app != "" || t != nil && t.App != "" || len(apps) < 2 {
		terms, err := tenantTerms(s, now, tenant, app)
		return []plan.Terms{terms}, err
	}
	var all []plan.Terms
	var first error
	for _, name := range apps {
		terms, err := tenantTerms(s, now, tenant, name)
		switch {
		case err == nil:
			all = append(all, terms)
		case first == nil:
			first = err
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, first
}

// tenantTerms finds the app and what holds for the tenant in it.
func tenantTerms(s *plan.Snapshot, now time.Time, tenant, app string) (plan.Terms, error) {
	what := "cannot read the usage of " + tenant
	if app == "" {
		apps := s.Names(plan.KindApp)
		if t := s.Tenant(tenant); t != nil && t.App != "" {
			apps = []string{t.App}
		}
		switch len(apps) {
		case 0:
			return plan.Terms{}, &failure{code: exitNotFound, what: what, why: "there is no app in the store", next: "apply an App first"}
		case 1:
			app = apps[0]
		default:
			return plan.Terms{}, usageError(tenant+" may belong to any of the apps "+strings.Join(apps, ", "), "add --app")
		}
	}
	if s.App(app) == nil {
		return plan.Terms{}, &failure{code: exitNotFound, what: what, why: "there is no valid app " + app, next: "metectl get apps lists them"}
	}
	terms := s.Terms(now, app, tenant)
	switch {
	case terms.Broken != "":
		return terms, &failure{code: exitInvalid, what: what, why: terms.Broken, next: "metectl status lists what is rejected"}
	case !terms.Known && len(terms.Nodes) == 0:
		return terms, &failure{code: exitNotFound, what: what, why: "there is no tenant " + tenant, next: "metectl get tenants lists them"}
	}
	return terms, nil
}

// usageLimits reads what is used of every limit of the leaf, and with path of its
// ancestors, the root first.
func usageLimits(ctx context.Context, accounts *store.Accounts, now time.Time, terms plan.Terms, path bool) ([]usageLimit, error) {
	limits := []usageLimit{}
	for i, node := range terms.Nodes {
		leaf := i == len(terms.Nodes)-1 // where usage is pooled it is the root
		for j := range node.Limits {
			l := &node.Limits[j]
			if !leaf && !path || !l.Charged {
				continue
			}
			u, err := readLimit(ctx, accounts, now, terms.Root, node.Tenant, l)
			if err != nil {
				return nil, err
			}
			if path {
				u.Node = node.Tenant
			}
			limits = append(limits, u)
		}
	}
	return limits, nil
}

func readLimit(ctx context.Context, accounts *store.Accounts, now time.Time, root, tenant string, l *plan.EffectiveLimit) (usageLimit, error) {
	u := usageLimit{Name: l.Name, Kind: kindWord(l.Kind), Unit: l.Unit}
	if !l.Unlimited {
		u.Amount = &l.Amount
	}
	if l.Kind == plan.Rate {
		u.pace = pace(l)
	}
	if l.Kind != plan.Quota {
		return u, nil
	}
	w := window(l, now)
	account, _, err := accounts.Read(ctx, quota.Key{Root: root, Tenant: tenant, Limit: l.Name, Window: w.ID})
	if err != nil {
		return u, err
	}
	u.fill(w, account)
	return u, nil
}

// fill tells what is used of the running window, and what of it running requests have
// reserved, as far as replicas have reported. Use may be below 0: more was given back
// than the account has left of what was charged, since it was cleared by hand, say.
func (l *usageLimit) fill(w quota.Window, a quota.Account) {
	reserved := min(a.Reserved(), max(0, a.Used())) // it is more where the quota was cleared since
	used, leased := a.Used()-reserved, a.Leased()
	l.Window = &usageWindow{ID: w.ID, Start: w.Start.UTC(), End: w.End.UTC()}
	l.Used, l.Leased, l.Reserved, l.ResetsAt = &used, &leased, &reserved, &l.Window.End
	if l.Amount != nil {
		left := max(0, *l.Amount-used-reserved-leased)
		l.Left = &left
	}
}

// window is the one that a request which starts now belongs to: that of the end
// of its minute (A17).
func window(l *plan.EffectiveLimit, now time.Time) quota.Window {
	return authz.Calendar(l).Window(quota.EndOfMinute(now))
}

func kindWord(k plan.LimitKind) string {
	switch k {
	case plan.Rate:
		return "rate"
	case plan.Quota:
		return "quota"
	case plan.Allocation:
		return "allocation"
	}
	return "unknown"
}

// pace is a rate in words: 300 per 1m.
func pace(l *plan.EffectiveLimit) string {
	if l.Unlimited {
		return "unlimited"
	}
	text := grouped(l.Amount) + " per " + spanText(l.Window)
	if l.Burst != l.Amount {
		text += ", burst " + grouped(l.Burst)
	}
	return text
}
