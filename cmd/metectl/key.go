package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Aliases: []string{"keys"},
		Short:   "Make and list API keys",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.keyCreateCommand(), c.keyListCommand())
	return cmd
}

// A keyRequest is what `key create` is asked for.
type keyRequest struct{ tenant, principal, class, prefix, expires string }

func (c *cli) keyCreateCommand() *cobra.Command {
	var r keyRequest
	cmd := &cobra.Command{
		Use:   "create --tenant TENANT",
		Short: "Make an API key and store its hash",
		Long: `Make an API key and store its hash. The key is printed once, alone on stdout, and is kept
nowhere: the store holds its SHA-256 only.`,
		Example: "  metectl key create --tenant org:acme --expires 90d",
		Args:    exactly(0, 0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.createKey(cmd.Context(), r) },
	}
	f := cmd.Flags()
	f.StringVar(&r.tenant, "tenant", "", "`tenant` that the key belongs to (required)")
	c.completeFlag(cmd, "tenant", plan.KindTenant)
	f.StringVar(&r.principal, "principal", "", "`who` uses the key")
	f.StringVar(&r.class, "class", "", "`class` of its requests; the app's class rules decide if left out")
	f.StringVar(&r.prefix, "prefix", "mk", "`start` of the key, for class rules and for people")
	f.StringVar(&r.expires, "expires", "", "`when` the key ends: 90d, 12h or 2027-01-31T00:00:00Z; never if left out")
	return cmd
}

func (c *cli) keyListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List API keys by the start of their hash",
		Args:    exactly(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.get(cmd.Context(), plan.KindCredential, "", false)
		},
	}
}

// A keyView is what `key create -o json` prints. It is the only place where a key
// is ever shown.
type keyView struct {
	Key       string     `json:"key"`
	Hash      string     `json:"hash"`
	Tenant    string     `json:"tenant"`
	Principal string     `json:"principal,omitempty"`
	Class     string     `json:"class,omitempty"`
	Prefix    string     `json:"prefix"`
	Expires   *time.Time `json:"expires"` // null: never
}

func (c *cli) createKey(ctx context.Context, r keyRequest) error {
	if r.tenant == "" {
		return usageError("--tenant is missing", "add --tenant TENANT; metectl get tenants lists them")
	}
	if !validKeyPrefix(r.prefix) {
		return usageError(fmt.Sprintf("--prefix %q is not a prefix", r.prefix), "use at most 16 of a-z, 0-9 and _, with no _ at the ends")
	}
	v := keyView{Tenant: r.tenant, Principal: r.principal, Class: r.class, Prefix: r.prefix + "_"}
	if r.expires != "" {
		at, err := parseExpiry(r.expires, c.now())
		if err != nil {
			return err
		}
		v.Expires = &at
	}
	v.Key, v.Hash = newAPIKey(r.prefix)
	doc, err := v.document()
	if err != nil {
		return err
	}
	err = c.withStore(ctx, "cannot make a key", func(ctx context.Context, client *clientv3.Client) error {
		return c.storeKey(ctx, client, doc)
	})
	if err != nil {
		return err
	}
	if err := c.printKey(v); err != nil {
		short := shortReference(plan.KindCredential, v.Hash)
		return &failure{
			code: exitPartly, what: "the key was made and could not be shown", why: err.Error(),
			next: "metectl delete " + short + " --yes, then make another one",
		}
	}
	c.say("%s created for tenant %s; the key is shown this once, keep it safe", shortReference(plan.KindCredential, v.Hash), v.Tenant)
	return nil
}

func (c *cli) printKey(v keyView) error {
	if c.output == "json" || c.output == "yaml" {
		return c.writeAs(v, nil)
	}
	_, err := fmt.Fprintln(c.stdout, v.Key)
	return err
}

// document is the key's credential, as people would write it.
func (v keyView) document() (*plan.Document, error) {
	spec := []string{"tenant", v.Tenant, "principal", v.Principal, "class", v.Class, "prefix", v.Prefix}
	if v.Expires != nil {
		spec = append(spec, "expires", v.Expires.Format(time.RFC3339))
	}
	text, err := credentialText(v.Hash, spec)
	if err != nil {
		return nil, err
	}
	doc, problems := plan.DecodeOne(plan.KindCredential, v.Hash, "", text)
	for _, p := range problems {
		if !p.Warning {
			return nil, usageError(p.Path+": "+p.Message, "metectl key create --help lists the flags")
		}
	}
	return doc, nil
}

func (c *cli) storeKey(ctx context.Context, client *clientv3.Client, doc *plan.Document) error {
	if err := mayWrite(ctx, client); err != nil {
		return err
	}
	catalog, err := loadCatalog(ctx, client)
	if err != nil {
		return err
	}
	if catalog.Snapshot().Tenant(doc.Credential.Tenant) == nil {
		return &failure{
			code: exitNotFound, what: "cannot make a key", why: "there is no tenant " + doc.Credential.Tenant,
			next: "metectl get tenants lists them; apply the tenant first",
		}
	}
	for _, p := range catalog.Check(doc) {
		if !p.Warning {
			return usageError(p.Path+": "+p.Message, "metectl key create --help lists the flags")
		}
		c.say("%s", p)
	}
	_, err = store.ApplyDocuments(ctx, client, []store.Change{{Kind: doc.Kind, Name: doc.Name, Text: doc.Text}})
	return conflict(err)
}
