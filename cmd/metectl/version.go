package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/meteproject/mete/plan"
)

// versionInfo is what `metectl version -o json` prints.
type versionInfo struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	Modified   bool   `json:"modified,omitempty"` // built from a changed tree
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	APIVersion string `json:"api_version"`
	Zones      string `json:"time_zones"` // version of the data
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of metectl",
		Args:  exactly(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if c.output != "table" {
				return c.writeAs(v, nil)
			}
			_, err := fmt.Fprintln(c.stdout, v)
			return err
		},
	}
}

// String is the version as a person reads it.
func (v versionInfo) String() string {
	return fmt.Sprintf("metectl %s (%s, %s, documents %s, time zones %s)", v.Version, v.Go, v.Platform, v.APIVersion, v.Zones)
}

func readVersion() versionInfo {
	v := versionInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, APIVersion: plan.APIVersion, Zones: plan.ZonesVersion()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
