package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func (c *cli) finalizeCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "finalize-upgrade",
		Short: "Put in force what the new version means by documents of old",
		Long: fmt.Sprintf(`Make the store need feature level %d, which this metectl and every live replica must have. Until
then a fleet can go back to the version before; from then on older versions do not start.

From level 5 on, what tenants below a node use is charged to each limit of the node, unless
that limit says cascade: false. The limits that begin to bind so are listed, and you are
asked first on a terminal; elsewhere --yes must be given. metectl status lists them, too.

The first document that says what only level %d can does the same. A repeat changes nothing.

Exit codes: 0 done, 4 a live replica has a lower level.`, plan.FeatureLevel, plan.FeatureLevel),
		Args: exactly(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.finalize(cmd.Context(), yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) finalize(ctx context.Context, yes bool) error {
	var begin []bindingView
	err := c.withStore(ctx, "cannot finalize the upgrade", func(ctx context.Context, client *clientv3.Client) error {
		m, err := store.Writable(ctx, client)
		if err != nil {
			return conflict(err)
		}
		catalog, err := loadCatalog(ctx, client)
		if err != nil {
			return err
		}
		begin = bindings(m, catalog.Snapshot(), c.now())
		return nil
	})
	if err != nil {
		return err
	}
	// The question is asked between two connections: --timeout is not for people.
	if err := c.confirmBindings(begin, yes, false); err != nil {
		return err
	}
	return c.withStore(ctx, "cannot finalize the upgrade", func(ctx context.Context, client *clientv3.Client) error {
		before, err := store.FinalizeUpgrade(ctx, client)
		if behind := (*store.BehindError)(nil); errors.As(err, &behind) {
			return &failure{code: exitConflict, what: "the upgrade is not finalized", why: behind.Why, next: "metectl status shows the replicas and their levels"}
		}
		if err != nil {
			return conflict(err)
		}
		word := "now"
		if before.Level >= plan.FeatureLevel {
			word = "already"
		}
		_, err = fmt.Fprintf(c.stdout, "the store needs feature level %d %s\n", plan.FeatureLevel, word)
		return err
	})
}
