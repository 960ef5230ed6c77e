package main

import (
	"context"
	"io"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

func (c *cli) diffCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "diff -f FILE|FOLDER|-",
		Short: "Show what apply would change",
		Long: `Show what apply would change, as a unified diff. What documents say is compared, not how
they are written: other spaces or comments are no difference. Limits that begin to bind the
tenants below a node are listed on stderr.

Exit codes: 0 no differences, 1 differences, 2 and more failures.`,
		Example: "  metectl diff -f plans/ || metectl apply -f plans/",
		Args:    exactly(0, 0, "its documents with -f"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.diff(cmd.Context(), files) },
	}
	addFiles(cmd, &files)
	return cmd
}

// A diffView is one difference as `diff -o json` prints it.
type diffView struct {
	Kind   plan.Kind `json:"kind"`
	Name   string    `json:"name"`
	Result string    `json:"result"`
	Diff   string    `json:"diff"`
}

func (c *cli) diff(ctx context.Context, files []string) error {
	b, err := c.readBatch(files)
	if err != nil {
		return err
	}
	if b.refused() {
		return c.refuse(b)
	}
	var steps []step
	var begin []bindingView
	err = c.withStore(ctx, "cannot compare", func(ctx context.Context, client *clientv3.Client) error {
		if steps, err = c.prepare(ctx, client, b); err != nil {
			return err
		}
		begin, err = bindingsOf(ctx, client, steps, b.after, c.now())
		return err
	})
	if err != nil {
		return err
	}
	views := []diffView{}
	for _, s := range steps {
		if s.changes() {
			views = append(views, diffView{s.doc.Kind, shortName(s.doc.Kind, s.doc.Name), s.verb, unified(s, b.files[s.doc])})
		}
	}
	if err := c.printDiffs(views); err != nil {
		return err
	}
	c.tellWaysLost(waysLost(b.before, b.after))
	c.sayBindings(begin)
	if len(views) > 0 {
		return answer(exitNegative)
	}
	return nil
}

func (c *cli) printDiffs(views []diffView) error {
	if c.output == "json" || c.output == "yaml" {
		return c.writeAs(views, nil)
	}
	for _, v := range views {
		text := v.Diff
		if c.output == "name" {
			text = printable(reference(v.Kind, v.Name)) + "\n"
		}
		if _, err := io.WriteString(c.stdout, text); err != nil {
			return err
		}
	}
	return nil
}

// unified shows the step from what is stored to what is in the file.
func unified(s step, file string) string {
	old, label := "", "/dev/null"
	if s.stored.revision != 0 {
		old, label = endWithNewline(s.stored.text), "store/"+shortReference(s.doc.Kind, s.doc.Name)
	}
	return udiff.Unified(label, file, old, endWithNewline(s.doc.Text))
}
