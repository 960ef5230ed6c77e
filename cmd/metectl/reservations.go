package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/meteproject/mete/plan"
)

// A leftList is what mete tells of reservations that processes before it have left, and what
// `metectl reservations list -o json` prints.
type leftList struct {
	Reservations []leftReservation `json:"reservations"`
	Matching     int               `json:"matching"`
	Outstanding  int64             `json:"outstanding"`
	Unknown      int64             `json:"unknown"`
}

type leftReservation struct {
	Decision  string       `json:"decision"`
	Process   string       `json:"process"`
	Made      time.Time    `json:"made"`
	App       string       `json:"app"`
	Principal string       `json:"principal,omitempty"`
	Charges   []leftCharge `json:"charges"`
}

type leftCharge struct {
	Tenant string `json:"tenant"`
	Limit  string `json:"limit"`
	Unit   string `json:"unit"`
	Window string `json:"window,omitempty"`
	Units  int64  `json:"units"`
}

// A forgiveRequest says what is to be forgiven.
type forgiveRequest struct {
	Decisions []string `json:"decisions,omitempty"`
	Tenant    string   `json:"tenant,omitempty"`
	All       bool     `json:"all,omitempty"`
	OlderThan string   `json:"older_than"`
}

// A forgiveReport tells what became of it.
type forgiveReport struct {
	Forgiven int              `json:"forgiven"`
	Settled  int              `json:"already_settled"`
	Young    []string         `json:"too_young,omitempty"`
	Unknown  []string         `json:"unknown,omitempty"`
	Failed   int              `json:"not_settled,omitempty"`
	Units    map[string]int64 `json:"units"`
}

func (c *cli) reservationsCommand() *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:     "reservations",
		Aliases: []string{"reservation"},
		Short:   "List and forgive what a killed mete has left unsettled",
		Long: `List and forgive reservations that processes before a mete have left unsettled: their requests
run on, or Envoy's log of them was lost when the process was killed. What was reserved counts
as used until then.

This asks the admin API of the mete that was started again on the same data folder, at
127.0.0.1:9002 unless --admin, METECTL_ADMIN or --data-dir says otherwise; METECTL_ADMIN_TOKEN is
its token, if it asks for one. Over https:// the flags --cacert, --cert and --key hold for it.`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&admin, "admin", "", "`address` of mete's admin API: host:port, https://host:port or unix:///path")
	cmd.AddCommand(c.reservationsListCommand(&admin), c.reservationsForgiveCommand(&admin))
	return cmd
}

func (c *cli) reservationsListCommand(admin *string) *cobra.Command {
	var tenant string
	var older time.Duration
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List reservations that processes before this one have left unsettled",
		Long: `List reservations that processes before this mete have left unsettled, the oldest first, 1,000 at
most. -o name prints the ids of their decisions.`,
		Example: "  metectl reservations list --data-dir ./mete-data\n  metectl reservations list --tenant org:acme -o json",
		Args:    exactly(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := c.listLeft(cmd.Context(), *admin, "cannot list reservations", tenant, older)
			if err != nil {
				return err
			}
			return c.printLeft(list)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "`tenant` that was charged, for itself or for one below it")
	cmd.Flags().DurationVar(&older, "older-than", 10*time.Minute, "least `age`: of younger ones the requests may run")
	c.completeFlag(cmd, "tenant", plan.KindTenant)
	return cmd
}

func (c *cli) reservationsForgiveCommand(admin *string) *cobra.Command {
	var r forgiveRequest
	var older time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "forgive DECISION... | forgive --tenant TENANT | forgive --all",
		Short: "Give back what they were charged",
		Long: `Settle reservations that processes before this mete have left unsettled as if their requests had cost
nothing: quotas get back what was charged, and usage events tell so. Nobody knows what became of these
requests; those that were served are free then. Each is settled once: if Envoy's log of one comes
afterwards it changes nothing, and what was settled before is left alone.

All replicas are asked what they have settled in the place of the killed one; while one of them does
not answer nothing is forgiven.

On a terminal you are asked first; elsewhere --yes must be given.`,
		Example: "  metectl reservations forgive 01K9VQX0F5T8QK3M5B7ZJ4R2HN\n  metectl reservations forgive --tenant org:acme --older-than 1h --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Decisions, r.OlderThan = args, older.String()
			named := 0
			for _, is := range []bool{len(args) > 0, r.Tenant != "", r.All} {
				if is {
					named++
				}
			}
			if named != 1 {
				return usageError("what is to be forgiven is not clear", "name decisions, or a tenant with --tenant, or --all; metectl reservations list shows them")
			}
			return c.forgive(cmd.Context(), *admin, r, older, yes)
		},
	}
	cmd.Flags().StringVar(&r.Tenant, "tenant", "", "all of this `tenant`: that it was charged for itself or for one below it")
	cmd.Flags().BoolVar(&r.All, "all", false, "all that there are")
	cmd.Flags().DurationVar(&older, "older-than", 10*time.Minute, "least `age`: of younger ones the requests may run")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.completeFlag(cmd, "tenant", plan.KindTenant)
	return cmd
}

// listLeft reads what is left.
func (c *cli) listLeft(ctx context.Context, admin, what, tenant string, older time.Duration) (list leftList, err error) {
	a, err := c.adminAPI(admin)
	if err != nil {
		return list, err
	}
	q := url.Values{"older_than": {older.String()}}
	if tenant != "" {
		q.Set("tenant", tenant)
	}
	return list, c.call(ctx, a, what, "/v1/reservations?"+q.Encode(), nil, &list)
}

func (c *cli) printLeft(list leftList) error {
	if c.output == "name" {
		for _, one := range list.Reservations {
			if _, err := fmt.Fprintln(c.stdout, one.Decision); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable("DECISION", "TENANT", "APP", "AGE", "PROCESS", "RESERVED")
	for _, one := range list.Reservations {
		tenant, parts := "-", []string(nil)
		for _, charge := range one.Charges {
			tenant = charge.Tenant // the last is the farthest from the root
			parts = append(parts, grouped(charge.Units)+" "+charge.Unit+" of "+charge.Limit)
		}
		age := max(time.Second, c.now().Sub(one.Made).Truncate(time.Second))
		t.add(one.Decision, tenant, one.App, spanText(age), one.Process, strings.Join(parts, ", "))
	}
	if err := c.writeAs(list, t); err != nil {
		return err
	}
	if n := list.Matching - len(list.Reservations); n > 0 {
		c.say("and %d more", n)
	}
	if list.Unknown > 0 {
		c.say("of %s that are not settled nothing but their number is known: they cannot be listed or forgiven", grouped(list.Unknown))
	}
	return nil
}

// forgive asks first, and tells what became of it.
func (c *cli) forgive(ctx context.Context, admin string, r forgiveRequest, older time.Duration, yes bool) error {
	const what = "cannot forgive reservations"
	n := len(r.Decisions)
	if n == 0 {
		list, err := c.listLeft(ctx, admin, what, r.Tenant, older)
		if err != nil {
			return err
		}
		if n = list.Matching; n == 0 {
			c.say("nothing is unsettled that is older than %s", older)
			return c.writeAs(forgiveReport{Units: map[string]int64{}}, newTable("FORGIVEN", "ALREADY SETTLED"))
		}
	}
	if !yes {
		if !isTerminal(c.stdin) {
			return needsYes("forgiving "+plural(n, "reservation")+" wants a yes", "add --yes; nothing was forgiven")
		}
		if err := c.ask("forgive "+plural(n, "reservation")+"?", "nothing was forgiven"); err != nil {
			return err
		}
	}
	a, err := c.adminAPI(admin)
	if err != nil {
		return err
	}
	var done forgiveReport
	if err := c.call(ctx, a, what, "/v1/reservations/forgive", r, &done); err != nil {
		var f *failure
		if errors.As(err, &f) && f.code == exitUnreachable {
			f.next = "try again; what a replica was asked about before that is told as already settled then, and stays charged"
		}
		return err
	}
	return c.tellForgiven(done)
}

func (c *cli) tellForgiven(done forgiveReport) error {
	t := newTable("FORGIVEN", "ALREADY SETTLED").alignRight(0, 1)
	t.add(grouped(int64(done.Forgiven)), grouped(int64(done.Settled)))
	if err := c.writeAs(done, t); err != nil {
		return err
	}
	for _, d := range done.Young {
		c.say("%s is too young: its request may run; --older-than says how old it has to be", d)
	}
	for _, d := range done.Unknown {
		c.say("%s is not known here: it was never left, or too long ago, or another replica has it", d)
	}
	if done.Failed > 0 {
		c.say("%s could not be settled: nobody knows any more whether they were", plural(done.Failed, "reservation"))
	}
	switch {
	case len(done.Unknown) > 0 && done.Forgiven+done.Settled == 0:
		return answer(exitNotFound)
	case len(done.Unknown)+len(done.Young)+done.Failed > 0:
		return answer(exitPartly)
	}
	return nil
}
