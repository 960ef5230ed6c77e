package main

import (
	"github.com/spf13/cobra"

	"github.com/meteproject/mete/plan"
)

func (c *cli) counterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "counter",
		Aliases: []string{"counters"},
		Short:   "List, show and reset counters",
		Long: `List, show and reset what is counted in the running windows: of the descriptors of a rate
limit domain, and of the quotas that a tenant's plan gives.

A counter of descriptors is named by its entries, KEY=VALUE with commas between them, as
Envoy sends them: org=northwind,route=export. %XX stands for a byte, so %2C for a comma in a
value, %25 for a percent sign and %FF for a byte that is not text. A value with * names the
counter that all matches of a rule with share_threshold share, and *when=CONDITION after an
entry that the rule has this condition.

Limits per second and minute are buckets in the replicas' memory: nobody can list what is in
them, but a reset makes them full again.`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.counterListCommand(), c.counterShowCommand(), c.counterResetCommand())
	return cmd
}

func (c *cli) counterListCommand() *cobra.Command {
	var tenant, app string
	cmd := &cobra.Command{
		Use:     "list DOMAIN | list --tenant TENANT",
		Aliases: []string{"ls"},
		Short:   "List live counters and how much of each is used",
		Long: `List the counters of a domain that have counted something in their running windows, or the
quotas of a tenant. Reading costs nothing and opens no window.`,
		Example: "  metectl counter list edge\n  metectl counter list edge -o json\n  metectl counter list --tenant org:acme",
		Args:    exactly(0, 1, "one domain, or --tenant"),

		ValidArgsFunction: c.completeNames(plan.KindRateLimits),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := domainOrTenant(args, 1, tenant, app); err != nil {
				return err
			}
			if tenant != "" {
				return c.listTenant(cmd.Context(), tenant, app)
			}
			return c.listDomain(cmd.Context(), args[0])
		},
	}
	c.addTenant(cmd, &tenant, &app)
	return cmd
}

func (c *cli) counterShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show DOMAIN KEY=VALUE[,KEY=VALUE]...",
		Short:   "Show the limits of one counter",
		Long:    `Show the limits of the counter of a descriptor, used or not.`,
		Example: "  metectl counter show edge org=northwind,route=export",
		Args:    exactly(2, 2, "a domain and a descriptor; put commas between its entries"),

		ValidArgsFunction: c.completeNames(plan.KindRateLimits),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.showCounter(cmd.Context(), args[0], args[1])
		},
	}
}

func (c *cli) counterResetCommand() *cobra.Command {
	var r resetRequest
	cmd := &cobra.Command{
		Use:   "reset DOMAIN KEY=VALUE[,KEY=VALUE]... | reset --tenant TENANT",
		Short: "Forget what was used in the running window",
		Long: `Forget what was used of a counter in its running windows, so that callers who were refused
are admitted as soon as the replicas hear of it, which takes a moment. The windows stay as
they are and end when they would have.

What replicas have used and not reported yet counts in the counter that was reset: at most
what they had on lease, a few seconds' worth. Nothing is counted twice, and nothing is admitted past
the amount from then on. Units that a request was charged before and gives back afterwards are given back.

Of a descriptor, --unit leaves limits of other units as they are; but those per second and
minute, which are buckets in the replicas, are full again in any case. Of a tenant its quotas
are reset, not those of its ancestors, which its requests may count in, too; its rates are not.

On a terminal you are asked first; elsewhere --yes must be given.`,
		Example: "  metectl counter reset edge org=northwind,route=export\n  metectl counter reset edge org=northwind --unit hour --yes\n  metectl counter reset --tenant org:acme --limit monthly",
		Args:    exactly(0, 2, "a domain and a descriptor, with commas between its entries, or --tenant"),

		ValidArgsFunction: c.completeNames(plan.KindRateLimits),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := domainOrTenant(args, 2, r.tenant, r.app); err != nil {
				return err
			}
			if r.tenant == "" {
				r.domain, r.text = args[0], args[1]
			}
			return c.reset(cmd.Context(), r)
		},
	}
	c.addTenant(cmd, &r.tenant, &r.app)
	cmd.Flags().StringVar(&r.unit, "unit", "", "`unit` of the limits of a descriptor to reset: second, minute, hour, day, week, month or year; all unless given")
	cmd.Flags().StringVar(&r.limit, "limit", "", "quota of the tenant to reset; all unless given")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) addTenant(cmd *cobra.Command, tenant, app *string) {
	cmd.Flags().StringVar(tenant, "tenant", "", "`tenant` whose quotas are meant, rather than a domain's counters")
	cmd.Flags().StringVar(app, "app", "", "`app` whose limits are meant; needed if there are several and the tenant names none")
	c.completeFlag(cmd, "tenant", plan.KindTenant)
	c.completeFlag(cmd, "app", plan.KindApp)
}

// domainOrTenant checks that either is named, not both: args are n, or none and a tenant.
func domainOrTenant(args []string, n int, tenant, app string) error {
	switch {
	case tenant != "" && len(args) > 0:
		return usageError("both a domain and --tenant are given", "give one of them")
	case tenant == "" && len(args) != n && len(args) == 0:
		return usageError("nothing is named", "name a domain, or a tenant with --tenant")
	case tenant == "" && len(args) != n:
		return usageError("the descriptor is missing", "write KEY=VALUE after the domain, with commas between entries; metectl counter ls "+args[0]+" lists the counters")
	case tenant == "" && app != "":
		return usageError("--app goes with --tenant", "leave it out: a domain's counters belong to no app")
	}
	return nil
}
