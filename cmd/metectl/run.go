package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A cli is one run of metectl: its streams, environment and global flags.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	now            func() time.Time

	endpoints          []string
	dataDir            string
	cacert, cert, key  string
	user               string
	timeout            time.Duration
	output             string
	endpointsByDefault bool // nobody named a store; for the hint of an error
	settled            bool // the command line is right; what fails now is no mistake in it
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	c := &cli{stdin: stdin, stdout: stdout, stderr: stderr, env: env, now: time.Now}
	root := c.rootCommand() //nolint:contextcheck // commands get ctx from ExecuteContext
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if c.settled {
		err = unexpected(err)
	}
	return report(ctx, stderr, err)
}

func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "metectl",
		Short: "Read and write mete's documents, see what is used",
		Long: `metectl reads and writes the documents that mete enforces, and shows what is used.

It talks to etcd, at 127.0.0.1:2379 unless --endpoints, --data-dir or the environment
(METECTL_ENDPOINTS, else ETCDCTL_ENDPOINTS) says otherwise. Each global flag has such a
variable: METECTL_CACERT, METECTL_CERT, METECTL_KEY, METECTL_USER, METECTL_PASSWORD,
METECTL_DATA_DIR, METECTL_TIMEOUT, METECTL_OUTPUT. Those for etcd fall back to
etcdctl's: ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER, ETCDCTL_PASSWORD.

Exit codes: 0 done; 1 a negative answer (differences found, something rejected); 2 wrong
command line; 3 document invalid; 4 conflict; 5 not found; 6 not permitted; 7 store
unreachable or timed out; 8 partly done; 130 interrupted.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.settle(cmd) },
	}
	root.Version = readVersion().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	f := root.PersistentFlags()
	f.StringSliceVar(&c.endpoints, "endpoints", []string{defaultEndpoint}, "etcd `addresses`, between commas")
	f.StringVar(&c.dataDir, "data-dir", "", "data `folder` of a mete on this machine; reads etcd's address from its addresses.json")
	f.StringVar(&c.cacert, "cacert", "", "`file` with the certificate authority of etcd")
	f.StringVar(&c.cert, "cert", "", "`file` with our certificate for etcd")
	f.StringVar(&c.key, "key", "", "`file` with the key of that certificate")
	f.StringVar(&c.user, "user", "", "etcd user, `name[:password]`; the password better in METECTL_PASSWORD")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "longest `time` for everything a command asks of the store")
	f.StringVarP(&c.output, "output", "o", "table", "`form` of the output: table, json, yaml or name")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(err.Error(), cmd.CommandPath()+" --help lists the flags")
	})
	root.AddCommand(
		c.applyCommand(), c.getCommand(), c.deleteCommand(), c.validateCommand(), c.diffCommand(),
		c.importCommand(), c.keyCommand(), c.statusCommand(), c.usageCommand(), c.counterCommand(), c.reservationsCommand(), c.finalizeCommand(),
		c.schemaCommand(), c.completionCommand(), c.versionCommand(),
	)
	return root
}

// unknownCommand refuses what is not a command, and tells of those that look like it.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	next := "metectl --help lists the commands"
	root.SuggestionsMinimumDistance = 2 // letters that differ
	if alike := root.SuggestionsFor(args[0]); len(alike) > 0 {
		next = "did you mean " + strings.Join(alike, " or ") + "? " + next
	}
	return usageError(fmt.Sprintf("unknown command %q", args[0]), next)
}

// settle fills the global flags from the environment and checks them.
func (c *cli) settle(cmd *cobra.Command) error {
	changed := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if v := c.env("METECTL_OUTPUT"); v != "" && !changed("output") {
		c.output = v
	}
	if !slices.Contains([]string{"table", "json", "yaml", "name"}, c.output) {
		return usageError(fmt.Sprintf("-o %s is unknown", c.output), "use -o table, json, yaml or name")
	}
	for flag, value := range map[string]*string{"cacert": &c.cacert, "cert": &c.cert, "key": &c.key, "user": &c.user} {
		if !changed(flag) {
			*value = c.setting(flag)
		}
	}
	if s := c.env("METECTL_TIMEOUT"); s != "" && !changed("timeout") {
		d, err := time.ParseDuration(s)
		if err != nil {
			return usageError(fmt.Sprintf("METECTL_TIMEOUT is %q", s), "write a duration such as 10s")
		}
		c.timeout = d
	}
	if c.timeout <= 0 {
		return usageError("--timeout must be above 0", "leave it out for 10s")
	}
	c.settled = true
	return c.settleEndpoints(changed)
}

// settleEndpoints finds out where the store is: flags first, then our own
// variables, then etcdctl's.
func (c *cli) settleEndpoints(changed func(string) bool) error {
	switch {
	case changed("endpoints") && changed("data-dir"):
		return usageError("--endpoints and --data-dir both name a store", "give one of them")
	case changed("endpoints"):
		return nil
	case changed("data-dir"):
		return nil // read when connecting, so that validate needs no file
	case c.env("METECTL_ENDPOINTS") != "":
		c.endpoints = splitList(c.env("METECTL_ENDPOINTS"))
	case c.env("METECTL_DATA_DIR") != "":
		c.dataDir = c.env("METECTL_DATA_DIR")
	case c.env("ETCDCTL_ENDPOINTS") != "":
		c.endpoints = splitList(c.env("ETCDCTL_ENDPOINTS"))
	default:
		c.endpointsByDefault = true
	}
	return nil
}

// setting reads METECTL_X, or ETCDCTL_X where the former is not set.
func (c *cli) setting(flag string) string {
	name := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if v := c.env("METECTL_" + name); v != "" {
		return v
	}
	return c.env("ETCDCTL_" + name)
}

func splitList(s string) []string {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// exactly makes cobra's check of the number of arguments one of our errors.
func exactly(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError(fmt.Sprintf("%s takes %s", cmd.CommandPath(), what), "write "+cmd.UseLine())
		}
		return nil
	}
}

// say prints a remark for people, on stderr.
func (c *cli) say(format string, args ...any) {
	_, _ = fmt.Fprintln(c.stderr, printable(fmt.Sprintf(format, args...)))
}
