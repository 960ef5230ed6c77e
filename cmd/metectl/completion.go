package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print the completion script of a shell",
		Example:   "  source <(metectl completion bash)",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      exactly(1, 1, "the name of one shell"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.stdout, true)
			case "zsh":
				return root.GenZshCompletion(c.stdout)
			case "fish":
				return root.GenFishCompletion(c.stdout, true)
			}
			return usageError(fmt.Sprintf("no completion for %q", args[0]), "use bash, zsh or fish")
		},
	}
}
