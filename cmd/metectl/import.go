package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An importer is one metectl import.
type importer struct {
	*cli

	paths               []string
	merge, prune, watch bool
	wait                bool
	source, dryRun      string
	told                map[string]bool // remarks that were made
}

func (c *cli) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FORMAT",
		Short: "Write other programs' configuration to the store",
		Long:  "Write other programs' configuration to the store. The one format is envoy-ratelimit.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("no format is named", "write metectl import envoy-ratelimit FOLDER")
			}
			return usageError(fmt.Sprintf("%q is no format that can be imported", args[0]), "write metectl import envoy-ratelimit FOLDER")
		},
	}
	cmd.AddCommand(c.importRateLimitCommand())
	return cmd
}

const importHelp = `Write the descriptor files of envoyproxy/ratelimit to the store, all or none, as they are.

A FOLDER is read as envoyproxy/ratelimit reads it: every .yaml, .yml and .json file and every
file without an extension, in folders below it too. Where it holds a folder "config" it is
taken for RUNTIME_ROOT/RUNTIME_SUBDIRECTORY and that folder is read. What begins with a dot is
skipped, so that a config map's "..data" is not read a second time. Other files are named and
skipped. A file that holds no descriptors, or a folder without files, is refused.

Everything is checked first, also against the store. What differs is written in one
transaction, so that replicas see one change and no domain is without its rules meanwhile.
Above 60 documents or 1 MiB it takes several; each domain changes in one as long as its
own documents fit. What says the same as before is not written again.

Names. A domain is the document ratelimits/DOMAIN. Two files with one domain are refused; with
--merge-domains (MERGE_DOMAIN_CONFIG there) every document is called DOMAIN/FILE, without
.yaml and with dots for slashes, so that files come and go without moving any other.

What an import wrote says so in its first line. Of the domains in the files, documents
of earlier imports that no file has any more are deleted in the same transaction. Other
domains stay; --prune deletes those that earlier imports have written. What people wrote
themselves is never deleted. Folders that are imported side by side need a --source each. So
does a file of settings (mete: {time_zone: ...}), where envoyproxy/ratelimit still reads the
others and would refuse it: imported with --merge-domains and a --source of its own it becomes
ratelimits/DOMAIN/FILE beside them.

--watch stays, and imports again within seconds when the files change; a swap of links is one
change. A state with something wrong in it is refused as a whole and told once, and the rules
before it stay in force. An etcd that is away is told once, too, and tried until it is back.
What others change or delete of the imported documents is put right within 30 s. It ends with 0
on SIGTERM. As a sidecar of mete or a small Deployment of its own, with the config map mounted,
it keeps feeding mete from the config map that feeds envoyproxy/ratelimit today.

Exit codes: 0 done; 2 wrong command line; 3 a file is invalid; 4 somebody else changed a
document meanwhile, or another source has it; 5 nothing to read; 7 store unreachable; 8 some
transactions of several were written.`

func (c *cli) importRateLimitCommand() *cobra.Command {
	im := &importer{cli: c, told: map[string]bool{}}
	cmd := &cobra.Command{
		Use:   "envoy-ratelimit FOLDER|FILE|-...",
		Short: "Write the descriptor files of envoyproxy/ratelimit to the store",
		Long:  importHelp,
		Example: `  metectl import envoy-ratelimit ratelimit/config --dry-run=client
  metectl import envoy-ratelimit ratelimit/config --merge-domains --wait
  metectl import envoy-ratelimit /data/ratelimit --watch --prune`,
		RunE: func(cmd *cobra.Command, args []string) error {
			im.paths = args
			if err := im.settle(); err != nil {
				return err
			}
			if im.watch {
				return im.follow(cmd.Context(), newImportPace())
			}
			return im.once(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&im.merge, "merge-domains", false, "allow several files for one domain")
	f.BoolVar(&im.prune, "prune", false, "delete what earlier imports wrote of domains that no file has any more")
	f.StringVar(&im.source, "source", "default", "`name` of where the files are from, if several are imported into one store")
	f.BoolVar(&im.watch, "watch", false, "stay, and import again whenever the files change")
	f.BoolVar(&im.wait, "wait", false, "wait until what was written is enforced or rejected, at most --timeout")
	f.StringVar(&im.dryRun, "dry-run", "", "`client`: only check and compare; server: send the transaction without writing")
	return cmd
}

// settle checks the command line.
func (im *importer) settle() error {
	switch {
	case len(im.paths) == 0:
		return usageError("no folder or file is named", "write metectl import envoy-ratelimit FOLDER")
	case !slices.Contains([]string{"", "client", "server"}, im.dryRun):
		return usageError(fmt.Sprintf("--dry-run=%s is unknown", im.dryRun), "use --dry-run=client or --dry-run=server")
	case im.dryRun != "" && (im.watch || im.wait):
		return usageError("--dry-run goes with neither --watch nor --wait", "leave one of them out")
	case im.watch && im.wait:
		return usageError("--watch and --wait exclude each other", "leave one of them out; metectl status tells what is rejected")
	case im.watch && slices.Contains(im.paths, "-"):
		return usageError("standard input cannot be watched", "name a folder or file")
	case im.watch && im.output == "yaml":
		return usageError("-o yaml does not go with --watch", "use -o table, json or name")
	case im.source == "" || len(im.source) > 63 || strings.Trim(im.source, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "":
		return usageError(fmt.Sprintf("--source %q is not a name", im.source), "use up to 63 of a-z, 0-9, dots, _ and -")
	}
	for i, path := range im.paths {
		if slices.Contains(im.paths[:i], path) {
			return usageError(path+" is there twice", "name each folder and file once")
		}
	}
	return nil
}

// once reads, checks and writes.
func (im *importer) once(ctx context.Context) error {
	r, err := readSteady(im.stdin, im.paths)
	if err != nil {
		return err
	}
	p, err := im.write(ctx, r)
	if err != nil {
		return err
	}
	if err := im.printViews(p.views(im.dryRun)); err != nil {
		return err
	}
	im.tell(p)
	if !im.wait {
		return nil
	}
	return im.awaitEnforced(ctx, p.steps)
}

// write brings the store to where the files are, and returns what it did.
func (im *importer) write(ctx context.Context, r *importReader) (*importPlan, error) {
	p := im.decode(r)
	p.notes = append(p.notes, r.skipped...)
	if p.refused() {
		return nil, im.refuse(p.batch)
	}
	err := im.withStore(ctx, "cannot import", func(ctx context.Context, client *clientv3.Client) error {
		if err := mayWrite(ctx, client); err != nil {
			return err
		}
		if err := im.compare(ctx, client, p); err != nil {
			return err
		}
		if err := im.tellWaiting(ctx, client, p.steps); err != nil {
			return err
		}
		return im.send(ctx, client, p)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// views is what was done, or would be, for the output.
func (p *importPlan) views(dryRun string) []stepView {
	views := make([]stepView, 0, len(p.steps)+len(p.gone))
	for _, s := range p.steps {
		views = append(views, stepView{Kind: s.doc.Kind, Name: s.doc.Name, Result: s.verb, DryRun: dryRun, Revision: s.revision})
	}
	for _, s := range p.gone {
		views = append(views, stepView{Kind: s.kind, Name: s.name, Result: "deleted", DryRun: dryRun, Revision: p.revision})
	}
	return views
}

// tell makes the remarks, each once.
func (im *importer) tell(p *importPlan) {
	if p.transactions > 0 {
		im.say("%s written in %s, revision %d", plural(p.changes(), "change"), plural(p.transactions, "transaction"), p.revision)
	}
	for _, note := range append(p.notes, p.differences()...) {
		if !im.told[note] {
			im.told[note] = true
			im.say("note: %s", note)
		}
	}
}

// changes is how many documents are written or deleted.
func (p *importPlan) changes() int {
	n := len(p.gone)
	for _, s := range p.steps {
		if s.changes() {
			n++
		}
	}
	return n
}
