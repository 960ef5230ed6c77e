package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func (c *cli) deleteCommand() *cobra.Command {
	var files []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete KIND NAME | delete -f FILE|FOLDER|-",
		Short: "Delete documents",
		Long: `Delete documents: one by its kind and name, or all that files name. What others still use
is not deleted (exit 4), and the reason is told. Nothing is deleted then. A tenant is used by
those below it and by its API keys.

On a terminal you are asked first; elsewhere --yes must be given.`,
		Example: "  metectl delete plan free\n  metectl delete credential 3f2a9c1b2d4e --yes",
		Args:    exactly(0, 2, "a kind and a name, or documents with -f"),

		ValidArgsFunction: c.completeReference,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.deleteAll(cmd.Context(), args, files, yes)
		},
	}
	addFiles(cmd, &files)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// A target is a document to delete.
type target struct {
	kind plan.Kind
	name string
}

func (c *cli) deleteAll(ctx context.Context, args, files []string, yes bool) error {
	targets, err := c.targets(args, files)
	if err != nil {
		return err
	}
	var doomed []stored
	err = c.withStore(ctx, "cannot delete", func(ctx context.Context, client *clientv3.Client) error {
		if err := mayWrite(ctx, client); err != nil {
			return err
		}
		doomed, err = c.doom(ctx, client, targets)
		return err
	})
	if err != nil {
		return err
	}
	// The question is asked between two connections: --timeout is not for people.
	if err := c.confirm(doomed, yes); err != nil {
		return err
	}
	err = c.withStore(ctx, "cannot delete", func(ctx context.Context, client *clientv3.Client) error {
		changes := make([]store.Change, 0, len(doomed))
		for _, s := range doomed {
			changes = append(changes, store.Change{Kind: s.kind, Name: s.name, ModRevision: s.revision})
		}
		_, err := store.ApplyDocuments(ctx, client, changes)
		return conflict(err)
	})
	if err != nil {
		return err
	}
	views := make([]stepView, 0, len(doomed))
	for _, s := range doomed {
		views = append(views, stepView{Kind: s.kind, Name: shortName(s.kind, s.name), Result: "deleted"})
	}
	return c.printViews(views)
}

func (c *cli) targets(args, files []string) ([]target, error) {
	if len(files) > 0 {
		if len(args) > 0 {
			return nil, usageError("both -f and a name are given", "give one of them")
		}
		b, err := c.readBatch(files)
		if err != nil {
			return nil, err
		}
		if b.refused() {
			return nil, c.refuse(b)
		}
		var targets []target
		for _, doc := range b.docs {
			targets = append(targets, target{doc.Kind, doc.Name})
		}
		return targets, nil
	}
	if len(args) == 0 {
		return nil, usageError("nothing to delete is named", "write metectl delete KIND NAME, or add -f")
	}
	kind, name, err := parseReference(args)
	if err == nil && name == "" {
		err = usageError("no name is given", "write metectl delete "+args[0]+" NAME")
	}
	return []target{{kind, name}}, err
}

// doom finds the documents, in an order in which they can go: what is used after
// what uses it.
func (c *cli) doom(ctx context.Context, client *clientv3.Client, targets []target) ([]stored, error) {
	catalog, err := loadCatalog(ctx, client)
	if err != nil {
		return nil, err
	}
	var waiting, doomed []stored
	for _, t := range targets {
		s, err := findStored(ctx, client, t.kind, t.name)
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, s)
	}
	for len(waiting) > 0 {
		var kept []stored
		for _, s := range waiting {
			if plan.Refused(catalog.CheckDelete(s.kind, s.name)) {
				kept = append(kept, s)
				continue
			}
			catalog.Delete(s.kind, s.name, s.revision)
			doomed = append(doomed, s)
		}
		if len(kept) == len(waiting) {
			return nil, inUse(catalog, kept[0])
		}
		waiting = kept
	}
	return doomed, keysLeft(catalog.Snapshot(), doomed)
}

// keysLeft is the failure of a delete that takes a tenant and leaves API keys of it, which
// would be answered 401 for ever and come back to life with a tenant of that name; nil if
// it leaves none. left is what the store would still hold.
func keysLeft(left *plan.Snapshot, doomed []stored) error {
	var tenants []string
	for _, s := range doomed {
		if s.kind == plan.KindTenant {
			tenants = append(tenants, s.name)
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	counts := left.CredentialsOf(tenants)
	for _, name := range tenants {
		if n := counts[name]; n > 0 {
			return &failure{
				code: exitConflict, what: "cannot delete " + shortReference(plan.KindTenant, name),
				why:  plural(n, "API key") + " of it would be left",
				next: "delete them first, or in the same command with -f; metectl key list shows them",
			}
		}
	}
	return nil
}

func inUse(catalog *plan.Catalog, s stored) error {
	var whys, nexts []string
	for _, p := range catalog.CheckDelete(s.kind, s.name) {
		if p.Warning {
			continue
		}
		why, next, _ := strings.Cut(p.Message, "; ")
		whys, nexts = append(whys, why), append(nexts, next)
	}
	return &failure{
		code: exitConflict, what: "cannot delete " + shortReference(s.kind, s.name),
		why: strings.Join(whys, ", and "), next: strings.Join(nexts, ", and "),
	}
}

// confirm asks on a terminal, and wants --yes elsewhere.
func (c *cli) confirm(doomed []stored, yes bool) error {
	if yes {
		return nil
	}
	names := make([]string, 0, len(doomed))
	for _, s := range doomed {
		names = append(names, shortReference(s.kind, s.name))
	}
	if !isTerminal(c.stdin) {
		return needsYes("deleting "+strings.Join(names, ", ")+" wants a yes", "add --yes; nothing was deleted")
	}
	return c.ask("delete "+strings.Join(names, ", ")+"?", "nothing was deleted")
}

// ask asks a person. Anything but a yes is a no, which ends the command with the
// remark.
func (c *cli) ask(question, otherwise string) error {
	_, _ = fmt.Fprint(c.stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(c.stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
		c.say("%s", otherwise)
		return answer(exitNegative)
	}
	return nil
}
