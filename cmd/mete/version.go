package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/meteproject/mete/plan"
)

// version is set by -ldflags "-X main.version=v1.2.3".
var version string

// buildInfo is what this binary is.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with edits
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Zones    string `json:"time_zones"` // version of the data
}

func build() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Zones: plan.ZonesVersion()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel" // metectl's word
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the version as a person reads it.
func (b buildInfo) String() string {
	return fmt.Sprintf("mete %s (%s, %s, time zones %s)", b.Version, b.Go, b.Platform, b.Zones)
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show what this binary is", Args: noArgs}
	output := cmd.Flags().StringP("output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := build()
		switch *output {
		case "text":
			_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
			return err
		case "json":
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(b)
		}
		return usageError{fmt.Errorf("--output %q is neither text nor json", *output)}
	}
	return cmd
}
