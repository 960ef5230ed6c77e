// Command mete decides for Envoy whether requests may go on.
//
//	mete serve            run the service
//	mete config print     show the effective settings and where each comes from
//	mete version          show what this binary is
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], environment{Lookup: os.LookupEnv, Environ: os.Environ, Hostname: os.Hostname}, os.Stdout, os.Stderr))
}

// run runs the command that args name and returns its exit code: 0 done, 2 wrong
// flags or settings, 1 anything else.
func run(args []string, env environment, stdout, stderr io.Writer) int {
	root := command(env)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "mete:", err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

func command(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "mete",
		Short:         "Rate limits and quotas for Envoy",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = build().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
	})
	config := &cobra.Command{
		Use:   "config",
		Short: "Look at the settings of mete serve",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	config.AddCommand(configPrintCommand(env))
	root.AddCommand(serveCommand(env), config, versionCommand())
	return root
}

// usageError is an error in what the operator wrote: flags, variables, the file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q is no command or argument of %s (see %s --help)", args[0], cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}
