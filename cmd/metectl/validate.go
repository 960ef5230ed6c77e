package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/meteproject/mete/plan"
)

// A problemView is a problem as `validate -o json` prints it.
type problemView struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Warning bool   `json:"warning"`
}

func (c *cli) validateCommand() *cobra.Command {
	var files []string
	var merge bool
	cmd := &cobra.Command{
		Use:   "validate FILE|FOLDER|-...",
		Short: "Check documents without a store",
		Long: `Check documents without a store. All problems are printed, one a line, as
file:line:column: field: what is wrong; what to write instead. Whether plans, parents and
apps that a document names exist is checked by diff and apply, which know the store.

Files of descriptors for envoyproxy/ratelimit are checked as they are; they are known by
domain or descriptors at the top. One domain in two documents is refused, unless
--merge-domains puts them together in the order of the files' names.`,
		Example: "  metectl validate plans/\n  metectl validate --merge-domains ratelimit/config/",
		RunE: func(_ *cobra.Command, args []string) error {
			return c.validate(append(files, args...), merge)
		},
	}
	addFiles(cmd, &files)
	cmd.Flags().BoolVar(&merge, "merge-domains", false, "merge the descriptors of one domain in several documents")
	return cmd
}

func addFiles(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, "`file`, folder or - (standard input) with documents; may be repeated")
}

func (c *cli) validate(files []string, merge bool) error {
	b, err := c.readFiles(files)
	if err != nil {
		return err
	}
	if merge {
		_, problems := plan.MergeRateLimits(b.rateLimits())
		b.problems = append(b.problems, problems...)
	} else {
		b.problems = append(b.problems, plan.RepeatedDomains(b.rateLimits())...)
	}
	b.problems = append(b.problems, plan.UnknownReplaces(b.rateLimits())...)
	switch c.output {
	case "table", "name":
		for _, p := range b.problems {
			if _, err := fmt.Fprintln(c.stdout, printable(p.String())); err != nil {
				return err
			}
		}
	default:
		if err := c.writeAs(viewProblems(b.problems), nil); err != nil {
			return err
		}
	}
	c.say("%s", b.verdict())
	if b.refused() {
		return answer(exitInvalid)
	}
	return nil
}

func viewProblems(problems []plan.Problem) []problemView {
	views := make([]problemView, 0, len(problems))
	for _, p := range problems {
		views = append(views, problemView{
			File: p.File, Line: p.Line, Column: p.Col, Kind: string(p.Kind), Name: shortName(p.Kind, p.Name),
			Path: p.Path, Message: p.Message, Warning: p.Warning,
		})
	}
	return views
}

// refuse prints the problems and the verdict on stderr. It returns nil if there
// are only warnings.
func (c *cli) refuse(b *batch) error {
	for _, p := range b.problems {
		c.say("%s", p)
	}
	if !b.refused() {
		return nil
	}
	c.say("%s", b.verdict())
	return answer(exitInvalid)
}
