package main

import (
	"github.com/spf13/cobra"

	"github.com/meteproject/mete/plan"
)

func (c *cli) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of documents, for editors",
		Long: `Print the JSON Schema of documents, for editors; of descriptor files for envoyproxy/ratelimit,
too. It is that of this metectl; validate and apply know more than a schema can say.`,
		Example: "  metectl schema > document.json\n  # yaml-language-server: $schema=document.json",
		Args:    exactly(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			_, err := c.stdout.Write(plan.Schema())
			return err
		},
	}
}
