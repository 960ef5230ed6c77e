package e2e_test

import (
	"maps"
	"slices"
	"testing"
)

func TestOutcomes_A6_A8_A9_C2_C14_Answers(t *testing.T) {
	t.Parallel()
	alone.check(t, answered())
}

func TestOutcomes_A9_APIBreaksOff(t *testing.T) {
	t.Parallel()
	alone.check(t, failed())
}

func TestOutcomes_A9_Timeouts(t *testing.T) {
	t.Parallel()
	alone.check(t, timedOut())
}

func TestOutcomes_A11_CallerLeaves(t *testing.T) {
	t.Parallel()
	alone.check(t, left())
}

func TestOutcomes_C123_Retries(t *testing.T) {
	t.Parallel()
	alone.check(t, retried())
}

func TestOutcomes_P64_Calls(t *testing.T) {
	t.Parallel()
	alone.check(t, calls())
}

func TestOutcomes_A27_LongRequests(t *testing.T) {
	t.Parallel()
	alone.check(t, long())
}

func TestOutcomes_A10_C3_C4_C42_Refusals(t *testing.T) {
	t.Parallel()
	alone.check(t, denied())
}

func TestOutcomes_A10_MeteIsNotThere(t *testing.T) {
	t.Parallel()
	alone.check(t, unasked())
}

func TestOutcomes_A8_EnvoyAnswers(t *testing.T) {
	t.Parallel()
	alone.check(t, local())
}

// What routes and plans make of one and the same request: a unit each (A6, A39), the
// weight of the route (A7, A36), what the API says was used, below what was reserved
// (A25, A26, A37, A38) and above it (A40), nothing (exempt), a unit with no refusal
// (C42) and a unit past the amount (C4); and nothing at all where it proves not to
// cost (A27).
func TestOutcomes_A6_A7_A25_A26_A27_A36_A37_A38_A39_A40_C4_C42_Columns(t *testing.T) {
	t.Parallel()
	m := alone.played(t)
	for outcome, want := range map[string][]int64{
		"up-200":                     {1, 5, 7, 25, 0, 1, 1},
		"grpc-unary-ok":              {1, 5, 7, 25, 0, 1, 1},
		"grpc-stream-client-cancel":  {1, 5, 100, 10, 0, 1, 1},
		"up-500":                     {0, 0, 0, 0, 0, 0, 0},
		"grpc-trailers-only":         {0, 0, 0, 0, 0, 0, 0},
		"cl-abort-h1-before-headers": {0, 0, 0, 0, 0, 0, 0},
	} {
		for i := range columns {
			m.cell(t, "api", outcome, columns[i].name).costs(t, want[i])
		}
	}
	grace := m.cell(t, "api", "up-200", "grace")
	if grace.base != tightAmount || grace.account.used != tightAmount+1 {
		t.Errorf("in grace: %d used before and %d after, want %d and one more", grace.base, grace.account.used, tightAmount)
	}
}

// The answer's metadata tells of the decision in all of Envoy's logs (P15), and mete's
// metrics of every request that stays at what was reserved because nothing tells how it
// ended.
func TestOutcomes_P15_EveryEndIsHeardOf(t *testing.T) {
	t.Parallel()
	m := alone.played(t)
	unsettled := 0
	for _, c := range m.cells {
		for _, line := range c.seen {
			if line.kind == "DownstreamEnd" && !c.outcome.blind && len(line.decision) < 16 {
				t.Errorf("%s: decision %q, want an id", c.id(), line.decision)
			}
		}
		if c.outcome.blind && c.outcome.costs == untold && !c.column.exempt {
			unsettled++
		}
	}
	if n := m.figures["mete_reservations_unsettled"]; int(n) != unsettled {
		t.Errorf("mete_reservations_unsettled is %v, want the %d whose end nothing tells", n, unsettled)
	}
	for _, word := range []string{"forged", "malformed", "late", "repeated", "dropped"} {
		series := `mete_settlements_total{result="` + word + `"}`
		if n, ok := m.figures[series]; n != 0 || !ok {
			t.Errorf("%s = %v, want 0", series, n)
		}
	}
}

// Where two filters of Envoy ask mete for a request, each is settled (P64).
func TestOutcomes_P64_BothFilters(t *testing.T) {
	t.Parallel()
	m := alone.played(t)
	served := int64(0)
	for _, c := range m.cells {
		if c.outcome.how.edge == "edge:open" {
			served++
		}
	}
	want := map[string]usage{"edge:full": {}, "edge:open": {used: served}, "edge:open-failed": {}}
	if !maps.Equal(m.edge, want) {
		t.Errorf("by the rate limit filter: %v, want %v", m.edge, want)
	}
}

// Settlements that another replica hears of are as exact (P64): the same matrix, the
// same costs, and the sum of all is the same.
func TestOutcomes_P64_A26_TwoReplicas(t *testing.T) {
	t.Parallel()
	var want, got int64
	for _, s := range sections() {
		pair.check(t, s)
		for i := range s.rows {
			for j := range columns {
				want += s.rows[i].costs[j]
				c := pair.cell(t, "api", s.rows[i].name, columns[j].name)
				got += c.account.used - c.base
			}
		}
	}
	if got != want {
		t.Errorf("all of it cost %d units, want %d", got, want)
	}
	const elsewhere = `mete_settlements_total{result="elsewhere"}`
	if pair.figures[elsewhere] == 0 {
		t.Errorf("%s is 0: no entry came to the replica that had not decided", elsewhere)
	}
}

// An app may say what costs: only what was delivered in full (C15, C2), or also what
// the caller did not wait for, if the API had seen it (A12).
func TestOutcomes_A12_C15_C2_WhatTheAppSays(t *testing.T) {
	t.Parallel()
	m := alone.played(t)
	unfinished := []string{
		"up-close-midbody-cl", "up-rst-midbody-chunked", "up-h2-rststream-midbody", "up-timeout-midbody", "idle-midbody", "maxdur-midbody",
		"cl-abort-h1-midbody", "cl-abort-h1-large-midbody", "cl-abort-h2-midbody", "grpc-stream-client-cancel", "grpc-stream-conn-drop",
	}
	notTwo := []string{"up-301", "redirect-route", "websocket", "websocket-periodic"}
	abandoned := []string{
		"cl-abort-h1-before-headers", "cl-abort-h1-100-continue", "cl-abort-h1-rst-before-headers", "cl-abort-h1-upload", "cl-abort-h2-before-headers", "grpc-unary-client-deadline",
	}
	for _, s := range sections() {
		for i := range s.rows {
			row := &s.rows[i]
			completed, aborted := row.costs, row.costs
			if slices.Contains(unfinished, row.name) || slices.Contains(notTwo, row.name) {
				completed = free
			}
			if slices.Contains(abandoned, row.name) {
				aborted = untold
			}
			for _, j := range []int{0, 2} {
				for app, want := range map[string]costs{"completed": completed, "aborted": aborted} {
					c := m.cell(t, app, row.name, columns[j].name)
					c.happened(t)
					if got := c.account.used - c.base; got != want[j] {
						t.Errorf("%s, %s, %s: cost %d, want %d", app, row.name, columns[j].title, got, want[j])
					}
				}
			}
		}
	}
}
