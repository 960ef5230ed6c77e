package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A step is what apply does, or would do, with one document.
type step struct {
	doc      *plan.Document
	stored   stored // what is there now
	verb     string // created, configured or unchanged
	revision int64  // after apply
}

func (s step) changes() bool { return s.verb != "unchanged" }

func (c *cli) applyCommand() *cobra.Command {
	var files []string
	var dryRun string
	var wait, yes bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Write documents to the store, all or none",
		Long: `Write documents to the store, all or none.

Every document is checked, also against those in the store, before anything is sent. Then
one transaction (several, for more than 60 documents) writes what differs; it fails (exit 4)
if any of the documents has been changed meanwhile. What says the same as before is not written again, because each write
makes replicas take new leases.

A file of descriptors for envoyproxy/ratelimit becomes ratelimits/DOMAIN. Several files of one
domain are written by metectl import envoy-ratelimit --merge-domains.

What you may not mean is shown, and you are asked first on a terminal; elsewhere --yes must
be given then: a quota lowered below what is used of it already, a plan in use without
limits, an App that no host leads to any more, limits that begin to bind.

--dry-run=client stops before the transaction, --dry-run=server sends it without writing.
--wait waits until a replica enforces what was written, or tells why it does not.`,
		Example: "  metectl apply -f plans/ --wait\n  generate-plans | metectl apply -f - --dry-run=client",
		Args:    exactly(0, 0, "its documents with -f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"", "client", "server"}, dryRun) {
				return usageError(fmt.Sprintf("--dry-run=%s is unknown", dryRun), "use --dry-run=client or --dry-run=server")
			}
			if wait && dryRun != "" {
				return usageError("--wait and --dry-run exclude each other", "leave one of them out")
			}
			return c.apply(cmd.Context(), files, dryRun, wait, yes)
		},
	}
	addFiles(cmd, &files)
	cmd.Flags().StringVar(&dryRun, "dry-run", "", "`client`: only check and compare; server: send the transaction without writing")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until what was written is enforced or rejected, at most --timeout")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) apply(ctx context.Context, files []string, dryRun string, wait, yes bool) error {
	b, err := c.readBatch(files)
	if err != nil {
		return err
	}
	if b.refused() {
		return c.refuse(b)
	}
	var steps []step
	var short []shortfall
	var begin []bindingView
	err = c.withStore(ctx, "cannot apply", func(ctx context.Context, client *clientv3.Client) error {
		if err := mayWrite(ctx, client); err != nil {
			return err
		}
		if steps, err = c.prepare(ctx, client, b); err != nil {
			return err
		}
		if err := c.tellWaiting(ctx, client, steps); err != nil {
			return err
		}
		if begin, err = bindingsOf(ctx, client, steps, b.after, c.now()); err != nil {
			return err
		}
		short, err = shortfalls(ctx, client, c.now(), steps, b.before, b.after)
		return err
	})
	if err != nil {
		return err
	}
	// The question is asked between two connections: --timeout is not for people.
	if err := c.confirmShortfalls(short, yes, dryRun != ""); err != nil {
		return err
	}
	if err := c.confirmEmptied(b.emptied, yes, dryRun != ""); err != nil {
		return err
	}
	if err := c.confirmWaysLost(waysLost(b.before, b.after), yes, dryRun != ""); err != nil {
		return err
	}
	if err := c.confirmBindings(begin, yes, dryRun != ""); err != nil {
		return err
	}
	err = c.withStore(ctx, "cannot apply", func(ctx context.Context, client *clientv3.Client) error {
		return c.send(ctx, client, steps, dryRun)
	})
	if err != nil {
		return err
	}
	if err := c.printSteps(steps, dryRun); err != nil {
		return err
	}
	if !wait {
		return nil
	}
	return c.awaitEnforced(ctx, steps)
}

// prepare compares the batch with the store, checks it against all that is there,
// and prints what is wrong.
func (c *cli) prepare(ctx context.Context, client *clientv3.Client, b *batch) ([]step, error) {
	catalog, err := loadCatalog(ctx, client)
	if err != nil {
		return nil, err
	}
	steps := make([]step, 0, len(b.docs))
	for _, doc := range b.docs {
		there, err := getStored(ctx, client, doc.Kind, doc.Name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{doc: doc, stored: there, verb: verb(doc, there)})
	}
	for _, doc := range b.docs {
		if doc.Kind == plan.KindApp {
			if err := c.checkZone(ctx, client, catalog, b, doc); err != nil {
				return nil, err
			}
		}
	}
	b.before = catalog.Snapshot()
	for _, s := range steps {
		b.checkDomain(s)
		catalog.Put(s.doc, s.stored.revision)
	}
	b.after = catalog.Snapshot()
	b.emptied = emptiedPlans(steps, catalog)
	for _, doc := range b.docs {
		b.problems = append(b.problems, catalog.Check(doc)...)
	}
	return steps, c.refuse(b)
}

func verb(doc *plan.Document, there stored) string {
	switch {
	case there.revision == 0:
		return "created"
	case there.doc != nil && same(doc, there.doc):
		return "unchanged"
	}
	return "configured"
}

// checkDomain refuses to write a document of descriptors over one of another domain, which
// is called alike: shop/eg is the domain shop/eg, or a further document of shop.
func (b *batch) checkDomain(s step) {
	if s.doc.RateLimits == nil || s.stored.doc == nil || s.stored.doc.RateLimits.Domain == s.doc.RateLimits.Domain {
		return
	}
	b.problems = append(b.problems, s.doc.Problem("domain", fmt.Sprintf(
		"would replace a further document of domain %s, which is called %s too and whose limits would be gone; "+
			"move those into ratelimits/%[1]s and delete it first: metectl get %[2]s --raw shows it",
		s.stored.doc.RateLimits.Domain, reference(s.doc.Kind, s.doc.Name))))
}

// checkZone refuses to move an app to another time zone once usage is recorded:
// windows would end elsewhere than they began (A18).
func (c *cli) checkZone(ctx context.Context, client *clientv3.Client, catalog *plan.Catalog, b *batch, doc *plan.Document) error {
	old := catalog.Snapshot().App(doc.Name)
	if old == nil || old.TimeZone.String() == doc.App.TimeZone.String() {
		return nil
	}
	used, err := client.Get(ctx, store.UsedKey(doc.Name), clientv3.WithCountOnly())
	if err != nil || used.Count == 0 {
		return err
	}
	line, col := b.position(doc, "spec", "time_zone")
	b.problems = append(b.problems, plan.Problem{
		File: b.files[doc], Line: line, Col: col, Kind: doc.Kind, Name: doc.Name, Path: "spec.time_zone",
		Message: fmt.Sprintf("cannot change from %s to %s, because usage is recorded; keep %s, or write a new app",
			old.TimeZone, doc.App.TimeZone, old.TimeZone),
	})
	return nil
}

// send runs the transaction, or its rehearsal.
func (c *cli) send(ctx context.Context, client *clientv3.Client, steps []step, dryRun string) error {
	var changes []store.Change
	for _, s := range steps {
		if s.changes() {
			changes = append(changes, store.Change{Kind: s.doc.Kind, Name: s.doc.Name, Text: s.doc.Text, ModRevision: s.stored.revision})
		}
	}
	slices.SortStableFunc(changes, func(a, b store.Change) int { // should not all fit into one transaction
		return cmp.Compare(slices.Index(store.Kinds(), a.Kind), slices.Index(store.Kinds(), b.Kind))
	})
	if len(changes) == 0 || dryRun == "client" {
		return nil
	}
	if dryRun == "server" {
		return conflict(rehearse(ctx, client, changes))
	}
	revision, err := store.ApplyDocuments(ctx, client, changes)
	if err != nil {
		return conflict(err)
	}
	for i := range steps {
		if steps[i].changes() {
			steps[i].revision = revision
		}
	}
	return nil
}

// A stepView is a step as `apply -o json` prints it.
type stepView struct {
	Kind   plan.Kind `json:"kind"`
	Name   string    `json:"name"`
	Result string    `json:"result"` // created, configured, unchanged or deleted
	DryRun string    `json:"dry_run,omitempty"`
	// Revision of the store after the write; 0 if nothing was written.
	Revision int64 `json:"revision,omitempty"`
}

func (c *cli) printSteps(steps []step, dryRun string) error {
	views := make([]stepView, 0, len(steps))
	for _, s := range steps {
		views = append(views, stepView{Kind: s.doc.Kind, Name: shortName(s.doc.Kind, s.doc.Name), Result: s.verb, DryRun: dryRun, Revision: s.revision})
	}
	return c.printViews(views)
}

func (c *cli) printViews(views []stepView) error {
	if c.output == "json" || c.output == "yaml" {
		return c.writeAs(views, nil)
	}
	for _, v := range views {
		line := printable(reference(v.Kind, v.Name))
		if c.output == "table" {
			line += " " + v.Result
		}
		switch {
		case c.output == "table" && v.DryRun == "client":
			line += " (dry run)"
		case c.output == "table" && v.DryRun == "server":
			line += " (server dry run)"
		}
		if _, err := fmt.Fprintln(c.stdout, line); err != nil {
			return err
		}
	}
	return nil
}
