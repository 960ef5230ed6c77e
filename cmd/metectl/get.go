package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

func (c *cli) getCommand() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show documents as they are in the store",
		Long: `Show documents as they are in the store. KIND is app, plan, routes, tenant, credential (or
key) or ratelimits, in singular or plural; KIND/NAME is one word for both.

-o yaml and json print what can be applied again. --raw prints the text as it was written,
comments included, valid or not; of ratelimits, so does -o yaml. Of credentials the hash is
cut short.`,
		Example: "  metectl get plans\n  metectl get tenant org:acme -o yaml",
		Args:    exactly(1, 2, "a kind, and a name if you like"),

		ValidArgsFunction: c.completeReference,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := parseReference(args)
			if err != nil {
				return err
			}
			return c.get(cmd.Context(), kind, name, raw)
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the stored text as it is")
	return cmd
}

func (c *cli) get(ctx context.Context, kind plan.Kind, name string, raw bool) error {
	if raw && kind == plan.KindCredential {
		return usageError("--raw would show whole hashes of credentials", "leave --raw out")
	}
	var found []stored
	what := "cannot read " + kindPlural(kind)
	if name != "" {
		what = "cannot read " + shortReference(kind, name)
	}
	err := c.withStore(ctx, what, func(ctx context.Context, client *clientv3.Client) error {
		var err error
		if name == "" {
			found, err = listStored(ctx, client, kind)
			return err
		}
		one, err := findStored(ctx, client, kind, name)
		found = []stored{one}
		return err
	})
	if err != nil {
		return err
	}
	if raw {
		return c.printRaw(found)
	}
	return c.printDocuments(kind, found, name != "")
}

// printRaw prints the stored texts, divided so that they can be applied again.
func (c *cli) printRaw(found []stored) error {
	for i, s := range found {
		text := string(s.text)
		if len(found) > 1 { // one alone is printed byte for byte
			text = endWithNewline(s.text)
		}
		if i > 0 {
			text = "---\n" + text
		}
		if _, err := fmt.Fprint(c.stdout, text); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printDocuments(kind plan.Kind, found []stored, alone bool) error {
	switch c.output {
	case "name":
		for _, s := range found {
			if _, err := fmt.Fprintln(c.stdout, printable(shortReference(kind, s.name))); err != nil {
				return err
			}
		}
		return nil
	case "table":
		if len(found) == 0 {
			c.say("no %s in the store", kindPlural(kind))
			return nil
		}
		return documentTable(kind, found).write(c.stdout, terminalWidth(c.stdout))
	}
	trees := make([]*tree, 0, len(found))
	var valid []stored
	for _, s := range found {
		if s.doc == nil {
			err := &failure{
				code: exitInvalid, what: "cannot read " + shortReference(kind, s.name), why: firstProblem(s),
				next: "metectl get " + shortReference(kind, s.name) + " --raw shows it as it is",
			}
			if alone {
				return err
			}
			c.say("left out: %v", err)
			continue
		}
		t, err := parseTree(s.text)
		if err != nil {
			return err
		}
		if kind == plan.KindCredential {
			t.setName(shortName(kind, s.name))
		}
		if s.doc.RateLimits != nil {
			t.plainDescriptors()
		}
		trees, valid = append(trees, t), append(valid, s)
	}
	if kind == plan.KindRateLimits && c.output == "yaml" {
		return c.printRaw(valid) // they are files of another program, whose comments stay
	}
	return c.printTrees(trees, alone)
}

// printTrees prints one object, or a list: in JSON an array, in YAML a file of
// several documents.
func (c *cli) printTrees(trees []*tree, alone bool) error {
	if c.output == "json" {
		if alone {
			return writeJSON(c.stdout, trees[0])
		}
		return writeJSON(c.stdout, trees)
	}
	for i, t := range trees {
		if i > 0 {
			if _, err := fmt.Fprintln(c.stdout, "---"); err != nil {
				return err
			}
		}
		if err := t.writeYAML(c.stdout); err != nil {
			return err
		}
	}
	return nil
}

func firstProblem(s stored) string {
	for _, p := range s.problems {
		if !p.Warning {
			return p.String()
		}
	}
	return "it is not valid"
}

// documentTable shows what tells documents of a kind apart.
func documentTable(kind plan.Kind, found []stored) *table {
	columns := map[plan.Kind][]string{
		plan.KindApp:        {"NAME", "TIME ZONE", "DEFAULT PLAN", "HOSTS"},
		plan.KindPlan:       {"NAME", "TITLE", "LIMITS"},
		plan.KindRoutes:     {"NAME", "APP", "RULES"},
		plan.KindTenant:     {"NAME", "PARENT", "PLAN", "OWN"},
		plan.KindCredential: {"HASH", "PREFIX", "TENANT", "PRINCIPAL", "CLASS", "EXPIRES"},
		plan.KindWebhook:    {"NAME", "URL"},
		plan.KindRateLimits: {"NAME", "DOMAIN", "RULES", "LIMITS", "SETTINGS"},
	}
	t := newTable(columns[kind]...)
	for _, s := range found {
		cells := make([]string, len(columns[kind]))
		cells[0] = shortName(kind, s.name)
		if s.doc == nil {
			cells[len(cells)-1] = "INVALID " + firstProblem(s)
		} else {
			copy(cells[1:], documentCells(s.doc))
		}
		for i := range cells {
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		t.add(cells...)
	}
	return t
}

func documentCells(doc *plan.Document) []string {
	switch doc.Kind {
	case plan.KindApp:
		return []string{doc.App.TimeZone.String(), doc.App.Defaults.Plan, strings.Join(doc.App.Hosts, ",")}
	case plan.KindPlan:
		names := make([]string, 0, len(doc.Plan.Limits))
		for i := range doc.Plan.Limits {
			names = append(names, limitSummary(&doc.Plan.Limits[i]))
		}
		return []string{doc.Plan.Title, strings.Join(names, ", ")}
	case plan.KindRoutes:
		return []string{doc.Routes.App, strconv.Itoa(len(doc.Routes.Rules))}
	case plan.KindTenant:
		return []string{doc.Tenant.Parent, doc.Tenant.Plan, ownSummary(doc.Tenant)}
	case plan.KindCredential:
		k := doc.Credential
		return []string{k.Prefix, k.Tenant, k.Principal, k.Class, expiry(k)}
	case plan.KindWebhook:
		return []string{doc.Webhook.URL}
	case plan.KindRateLimits:
		rules, limits := countRules(doc.RateLimits.Rules)
		return []string{doc.RateLimits.Domain, strconv.Itoa(rules), strconv.Itoa(limits), settingsSummary(doc.RateLimits.Settings)}
	}
	return nil
}

// limitSummary is a limit in two words: monthly 1,000.
func limitSummary(l *plan.Limit) string {
	if l.Unlimited {
		return l.Name + " unlimited"
	}
	return l.Name + " " + grouped(l.Amount)
}

// ownSummary tells what a tenant has beside its plan.
func ownSummary(t *plan.Tenant) string {
	var parts []string
	if n := len(t.Limits); n > 0 {
		parts = append(parts, plural(n, "limit"))
	}
	if n := len(t.Overrides); n > 0 {
		parts = append(parts, plural(n, "override"))
	}
	if t.PoolRoot {
		parts = append(parts, "pooled at the root")
	}
	return strings.Join(parts, ", ")
}

func expiry(k *plan.Credential) string {
	switch {
	case k.Disabled:
		return "DISABLED"
	case k.Expires.IsZero():
		return "never"
	}
	return k.Expires.UTC().Format(time.RFC3339)
}
