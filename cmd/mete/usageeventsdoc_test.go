package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/quota"
)

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The event that the page shows is one that could be written: its window is the one that
// its time is in.
func TestUsageEvents_Q49_TheExampleIsTrue(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(document(t, "../../docs/usage-events.md"), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	var event struct {
		Time time.Time
		Data struct{ Window string }
	}
	if err := json.Unmarshal([]byte(block), &event); err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if w := (quota.Calendar{Kind: quota.Month, Zone: berlin}).Window(event.Time); w.ID != event.Data.Window {
		t.Errorf("the window is %q, want %q", event.Data.Window, w.ID)
	}
}

// Window ids in the documents are those of accounts and events.
func TestDocuments_Q49_WindowIDs(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`\b(hour|day|week|month|year|billing)([0-9]*)@([0-9][-0-9T:]*Z)`)
	other := regexp.MustCompile(`"window": ?"([^"]*)"`)
	found := 0
	for _, path := range append(paths, "../../README.md") {
		text := document(t, path)
		for _, m := range other.FindAllStringSubmatch(text, -1) {
			if !id.MatchString(m[1]) {
				t.Errorf("%s: %q is not a window", path, m[1])
			}
		}
		for _, m := range id.FindAllStringSubmatch(text, -1) {
			found++
			times, _ := strconv.Atoi(m[2])
			begins, err := time.Parse("2006-01-02T15:04Z", m[3])
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			c := quota.Calendar{Kind: kindOf(m[1]), Times: times, Anchor: begins.In(berlin).Day(), Zone: berlin}
			if got := c.Window(begins).ID; got != m[0] {
				t.Errorf("%s: %s, want %s", path, m[0], got)
			}
		}
	}
	if found < 3 {
		t.Errorf("%d ids found", found)
	}
}

func kindOf(word string) quota.CalendarKind {
	for k := quota.Hour; k <= quota.Billing; k++ {
		if k.String() == word {
			return k
		}
	}
	return 0
}
