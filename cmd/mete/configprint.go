package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

// configPrintCommand takes the flags of mete serve and shows what they amount to.
func configPrintCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Show the effective settings, where each comes from, and what is wrong with them",
		Args:  noArgs,
	}
	output := cmd.Flags().StringP("output", "o", "yaml", "yaml or json")
	src := addFlags(cmd.Flags(), env)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		got, err := src.load(env)
		if err != nil {
			return usageError{err}
		}
		for _, name := range strayVariables(env) {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "mete: no setting reads the variable %s\n", name)
		}
		var printErr error
		switch *output {
		case "yaml":
			printErr = printYAML(cmd.OutOrStdout(), got)
		case "json":
			printErr = printJSON(cmd.OutOrStdout(), got)
		default:
			return usageError{fmt.Errorf("--output %q is neither yaml nor json", *output)}
		}
		if printErr != nil {
			return printErr
		}
		if err := got.check(); err != nil {
			return usageError{err}
		}
		return nil
	}
	return cmd
}

// printYAML writes a file that --config takes, with the origins as comments.
func printYAML(w io.Writer, s settings) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	for _, one := range allSettings() {
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: one.name}
		value := &yaml.Node{}
		if err := value.Encode(one.shown(&s.config)); err != nil {
			return err
		}
		comment := "# " + string(s.origin[one.name])
		if value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
			value.HeadComment = comment
		} else {
			value.LineComment = comment
		}
		doc.Content = append(doc.Content, key, value)
	}
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err := text.WriteTo(w)
	return err
}

func printJSON(w io.Writer, s settings) error {
	type entry struct {
		Value  any    `json:"value"`
		Origin origin `json:"origin"`
	}
	all := map[string]entry{}
	for _, one := range allSettings() {
		all[one.name] = entry{one.shown(&s.config), s.origin[one.name]}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(all)
}

// shown returns the setting as people may see it: durations as they are written,
// passwords masked.
func (s setting) shown(c *config) any {
	mask := func(text string) string { return text }
	if s.name == "etcd-endpoints" {
		mask = maskEndpoint
	}
	switch p := s.in(c).(type) {
	case *string:
		return mask(*p)
	case *int:
		return *p
	case *bool:
		return *p
	case *time.Duration:
		return p.String()
	case *[]string:
		list := make([]string, len(*p))
		for i, item := range *p {
			list[i] = mask(item)
		}
		return list
	}
	return nil
}

// maskEndpoint hides the user and password of an endpoint, also of one that is no
// URL: a password with odd characters makes it so. No other setting is a secret:
// secrets are in files, and the settings are the files' names.
func maskEndpoint(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, ":/@") {
		found, rest = false, text
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 || strings.HasPrefix(rest, "/") { // a path has no user
		return text
	}
	rest = "****@" + rest[at+1:]
	if !found {
		return rest
	}
	return scheme + "://" + rest
}
