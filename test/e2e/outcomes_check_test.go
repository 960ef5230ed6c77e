package e2e_test

import (
	"strings"
	"testing"
)

// check tells what is wrong with the cells of a section.
func (m *matrix) check(t *testing.T, s section) {
	t.Helper()
	m.played(t)
	for i := range s.rows {
		t.Run(s.rows[i].name, func(t *testing.T) {
			for j := range columns {
				c := m.cell(t, "api", s.rows[i].name, columns[j].name)
				c.happened(t)
				c.costs(t, s.rows[i].costs[j])
			}
		})
	}
}

// happened checks that it was this outcome and no other: by what the caller got and by
// what Envoy says.
func (c *cell) happened(t *testing.T) {
	t.Helper()
	if c.err != nil {
		t.Errorf("%s: %v", c.column.title, c.err)
		return
	}
	if c.outcome.full && c.column.serves || c.outcome.how.stranger && c.column.exempt {
		return // here it is served, which is another outcome
	}
	if c.saw != c.outcome.saw {
		t.Errorf("%s: the caller got %q, want %q", c.column.title, c.saw, c.outcome.saw)
	}
	ends := 0
	for _, line := range c.seen {
		if line.kind == "DownstreamEnd" {
			if ends++; c.outcome.followed && line.details == "internal_redirect" {
				continue
			}
			c.logged(t, line)
		}
	}
	want := strings.Count(c.outcome.saw, " twice") + 1
	if c.outcome.followed {
		want++
	}
	if ends != want {
		t.Errorf("%s: Envoy logs %d ends, want %d: %v", c.column.title, ends, want, c.seen)
	}
}

func (c *cell) logged(t *testing.T, line logLine) {
	t.Helper()
	want := strings.Fields(c.outcome.log)
	if line.code != want[0] || len(want) == 3 && (line.flags != want[1] || !strings.HasPrefix(line.details, want[2])) {
		t.Errorf("%s: Envoy logs %s %s %s, want %s", c.column.title, line.code, line.flags, line.details, c.outcome.log)
	}
	if blind := line.decision == "-"; blind != c.outcome.blind {
		t.Errorf("%s: Envoy logs decision %s, want none: %v", c.column.title, line.decision, c.outcome.blind)
	}
}

// costs checks what the tenant was charged for it: by its account, and by what metectl
// shows where that was asked.
func (c *cell) costs(t *testing.T, want int64) {
	t.Helper()
	want += c.base
	if c.account != (usage{used: want}) {
		t.Errorf("%s: the account has %+v, want %d used, of which %d before", c.column.title, c.account, want, c.base)
	}
	if c.shown != nil && *c.shown != (usage{used: want}) {
		t.Errorf("%s: metectl shows %+v, want %d used", c.column.title, *c.shown, want)
	}
}
