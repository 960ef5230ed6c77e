package differential_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// A difference is a line of the guide's table, and what holds both sides to it.
type difference struct {
	says string // the first cell
	ids  string
	test func(t *testing.T)
}

// differences are the only ones: everything else is compared as equal.
func differences() []difference {
	return []difference{
		{"second, minute", "R1_C030", bucketsForWindows},
		{"on several replicas", "R24_R25", eachReplicaItsBuckets},
		{"hour and longer", "P11", quotasOverReplicas},
		{"month, year, week", "P11_C052_C053", calendars},
		{"the last minute", "A17", lastMinute},
		{"a refused request", "C030", refusedIsFree},
		{"several descriptors", "C030", allOrNothing},
		{"0 hits", "P13_C046", looks},
		{"hits of a rule that 0 hits have matched before", "C153", billed},
		{"what a refused client reads", "P13_C44", refusedReads},
		{"refunds (`is_negative_hits`)", "P13", refunds},
		{"limits from Envoy (`limit`)", "P14_S31_C051", overrides},
		{"an override with an unknown unit", "P14_C051", overrideOfNoUnit},
		{"`unit_multiplier` in an override", "P12", multiplier},
		{"bytes that are not UTF-8 in a value", "P10", bytesOfValues},
		{"2^64 - 1 hits", "P13", mostHits},
		{"no domain, no descriptors", "C027", nothingAsked},
		{"more than 1000 descriptors, 64 entries in one, 64 KiB in a key or value", "C027", bounds},
		{"status of a `quota_mode` rule that is over while another has room", "P5_C126", quotaStatus},
		{"remaining and reset of what is over", "P1_C127", whatOverSays},
		{"the store away", "P44_C122", storeAway},
		{"a file that was never valid", "C004_P21", neverValid},
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for _, d := range differences() {
		name := regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(d.says, "_") + "_" + d.ids
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, d.test)
		})
	}
}

// The guide tells the differences that there are, and no others.
func TestGuideTellsTheDifferences(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/from-envoy-ratelimit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "## What differs, and why")
	table, _, _ = strings.Cut(table, "\n## ")
	told := map[string]bool{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if says := strings.TrimSpace(cells[min(1, len(cells)-1)]); len(cells) > 4 && says != "" && !strings.HasPrefix(says, "---") {
			told[says] = true
		}
	}
	for _, d := range differences() {
		if !told[d.says] {
			t.Errorf("the guide does not tell of %q", d.says)
		}
		delete(told, d.says)
	}
	for says := range told {
		t.Errorf("the guide tells of %q, and no test holds it to that", says)
	}
}
