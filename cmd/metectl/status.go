package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A statusReport is what `metectl status -o json` prints.
type statusReport struct {
	Store    storeView      `json:"store"`
	Replicas []replicaView  `json:"replicas"`
	Rejected []rejectedView `json:"rejected"`
	// Ignored are keys under /mete/v1/ that are no documents, 100 at most.
	Ignored []string `json:"ignored_keys,omitempty"`
	// Later are rules of rate limit domains whose charges tell of use that happened.
	Later []string `json:"settled_later,omitempty"`
	// Begin are the limits that begin to bind once the upgrade is finalized.
	Begin []bindingView `json:"begins_to_bind,omitempty"`
}

type storeView struct {
	Endpoints []string `json:"endpoints"`
	Revision  int64    `json:"revision"`
	Minimum   int      `json:"minimum_level"` // feature level that it needs; 0: cannot be read
	// Refusal is what etcd says to writes; "" if it takes them, or would not say so to
	// this user.
	Refusal string `json:"refuses_writes,omitempty"`

	minimum store.Minimum
}

type replicaView struct {
	Incarnation  string    `json:"incarnation"`
	Address      string    `json:"address"`
	Version      string    `json:"version"`
	FeatureLevel int       `json:"feature_level"`
	Zones        string    `json:"time_zones,omitempty"` // version of the data
	Needs        string    `json:"needs,omitempty"`      // why it should be upgraded
	Clock        time.Time `json:"clock"`                // the replica's own, when it last wrote
}

type rejectedView struct {
	Kind     plan.Kind     `json:"kind"`
	Name     string        `json:"name"`
	Deleted  bool          `json:"deleted"` // the rejected edit is a deletion
	Revision int64         `json:"revision"`
	Since    time.Time     `json:"since"`
	Problems []problemView `json:"problems"` // the file is the key in the store

	lines []string
}

func viewRejection(r store.Rejection) rejectedView {
	v := rejectedView{Kind: r.Kind, Name: shortName(r.Kind, r.Name), Deleted: r.Deleted, Revision: r.Revision, Since: r.Since.UTC(), lines: rejectionLines(r)}
	problems := make([]plan.Problem, 0, len(r.Problems))
	for _, p := range r.Problems {
		problems = append(problems, placed(r, p))
	}
	v.Problems = viewProblems(problems)
	return v
}

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the store, the live replicas, and documents that are rejected",
		Long: `Show the store, the live replicas, and documents that are rejected: their newest edit is not
enforced, the last valid one still is. Where there never was one, on_unavailable of the app
decides for the tenants.

A replica that is too old for what the store holds goes on with the last versions that it
could read; it is marked here. Limits that begin to bind with metectl finalize-upgrade are
listed, and so are keys under /mete/v1/ that are no documents, which replicas pass over.

An etcd that takes no writes, because its database is full for one, is shown with what it
says. What it refuses to replicas alone, their /readyz?verbose and mete_store_writable tell.

Exit codes: 0 nothing is rejected, 1 something is, or a replica needs a newer version, or
etcd takes no writes.`,
		Args: exactly(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.status(cmd.Context()) },
	}
}

func (c *cli) status(ctx context.Context) error {
	var r statusReport
	err := c.withStore(ctx, "cannot read the status", func(ctx context.Context, client *clientv3.Client) error {
		var err error
		if r, err = readStatus(ctx, client); err != nil {
			return err
		}
		if err := store.CheckWrites(ctx, client); err != nil && !store.Denied(err) {
			r.Store.Refusal = err.Error()
		}
		return r.findBindings(ctx, client, c.now())
	})
	if err != nil {
		return err
	}
	c.ownLevel(r.Store.minimum)
	if err := c.printStatus(r); err != nil {
		return err
	}
	if len(r.Rejected) > 0 || r.Store.Refusal != "" || slices.ContainsFunc(r.Replicas, func(v replicaView) bool { return v.Needs != "" }) {
		return answer(exitNegative)
	}
	return nil
}

func (c *cli) printStatus(r statusReport) error {
	switch c.output {
	case "table":
	case "name":
		for _, d := range r.Rejected {
			if _, err := fmt.Fprintln(c.stdout, printable(reference(d.Kind, d.Name))); err != nil {
				return err
			}
		}
		return nil
	default:
		return c.writeAs(r, nil)
	}
	width := terminalWidth(c.stdout)
	_, err := fmt.Fprintf(c.stdout, "store     revision %d at %s\nreplicas  %d live\nrejected  %s\n",
		r.Store.Revision, strings.Join(r.Store.Endpoints, ", "), len(r.Replicas), plural(len(r.Rejected), "document"))
	if err != nil {
		return err
	}
	if r.Store.Refusal != "" {
		if _, err := fmt.Fprintf(c.stdout, "writes    refused: %s\n", r.Store.Refusal); err != nil {
			return err
		}
	}
	if err := c.printReplicas(&r, width); err != nil {
		return err
	}
	if err := printBindings(c.stdout, r.Begin); err != nil {
		return err
	}
	if err := printKeys(c.stdout, width, "IGNORED: NO DOCUMENT HAS SUCH A KEY", r.Ignored); err != nil {
		return err
	}
	if err := printKeys(c.stdout, width, "SETTLED LATER: WHAT THESE RULES ARE CHARGED COUNTS IN FULL", r.Later); err != nil {
		return err
	}
	if len(r.Rejected) == 0 {
		return nil
	}
	t := newTable("REJECTED", "REVISION", "SINCE", "WHY")
	for _, d := range r.Rejected {
		for i, line := range d.lines {
			if i > 0 {
				t.add("", "", "", line)
				continue
			}
			t.add(reference(d.Kind, d.Name), strconv.FormatInt(d.Revision, 10), d.Since.Format(time.RFC3339), line)
		}
	}
	t.gap = true
	return t.write(c.stdout, width)
}

// printKeys adds a list to a status, if there is anything in it.
func printKeys(w io.Writer, width int, title string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	t := newTable(title)
	for _, key := range keys {
		t.add(key)
	}
	t.gap = true
	return t.write(w, width)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// zones returns the versions of the data of time zones that live replicas have.
func (r *statusReport) zones() []string {
	return store.ZoneVersions(func(yield func(store.Presence) bool) {
		for _, v := range r.Replicas {
			if !yield(store.Presence{Zones: v.Zones}) {
				return
			}
		}
	})
}

// printReplicas prints who is live.
func (c *cli) printReplicas(r *statusReport, width int) error {
	if len(r.Replicas) > 0 {
		t := newTable("REPLICA", "ADDRESS", "VERSION", "LEVEL", "CLOCK", "")
		for _, p := range r.Replicas {
			t.add(p.Incarnation, orDash(p.Address), orDash(p.Version), strconv.Itoa(p.FeatureLevel), p.Clock.UTC().Format(time.RFC3339), p.Needs)
		}
		t.gap = true
		if err := t.write(c.stdout, width); err != nil {
			return err
		}
	}
	if versions := r.zones(); len(versions) > 1 {
		_, err := fmt.Fprintf(c.stdout, "\nreplicas reckon with different data of time zones, %s: windows may begin at different moments; bring them to one version\n",
			strings.Join(versions, " and "))
		return err
	}
	return nil
}
