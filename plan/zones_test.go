package plan_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/plan"
)

// Zones come from the binary, whatever the machine or ZONEINFO has under their names.
func TestZones_C041_OnlyTheirOwnData(t *testing.T) { //nolint:paralleltest // it sets the environment
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "Europe"), 0o700); err != nil {
		t.Fatal(err)
	}
	fiji := "Pacific/Fiji"
	there, err := plan.LoadZone(fiji)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("zones/zones.bin")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), text[:200], 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ZONEINFO", dir)
	berlin := decodeOne(t, strings.Replace(appText, "time_zone: UTC", "time_zone: Europe/Berlin", 1)).App.TimeZone
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	if got := at.In(berlin).Format("15:04 MST"); got != "14:00 CEST" {
		t.Errorf("in Berlin it is %s", got)
	}
	if got := at.In(there).Format("15:04"); got != "00:00" {
		t.Errorf("in Fiji it is %s", got)
	}
	if !regexp.MustCompile(`^20[0-9]{2}[a-z]$`).MatchString(plan.ZonesVersion()) {
		t.Errorf("version %q", plan.ZonesVersion())
	}
	for _, name := range []string{"", "Mars/Base", "../../etc/passwd", "Europe", "Europe/Berlin 0 1", "2025c", "Local"} {
		if zone, err := plan.LoadZone(name); err == nil {
			t.Errorf("%q is %s", name, zone)
		}
	}
}

// Every zone of the data can be read.
func TestZones_C041_AllAreThere(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("zones/index.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(index)) {
		name, _, entry := strings.Cut(line, " ")
		if !entry {
			continue
		}
		n++
		if zone, err := plan.LoadZone(name); err != nil || zone.String() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 500 {
		t.Errorf("%d zones", n)
	}
}
