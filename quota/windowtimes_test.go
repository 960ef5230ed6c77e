package quota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

var timesTests = []struct {
	name  string
	kind  quota.CalendarKind
	times int
	zone  string
	at    string
	start string
	end   string
}{
	{"six hours", quota.Hour, 6, "Asia/Kolkata", "2026-11-30T12:00:00Z", "2026-11-30T06:30:00Z", "2026-11-30T12:30:00Z"},
	{"a day in hours", quota.Hour, 24, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
	{"six hours, of which one comes twice", quota.Hour, 6, "Europe/Berlin", "2026-10-25T04:59:59Z", "2026-10-24T22:00:00Z", "2026-10-25T05:00:00Z"},
	{"six hours, of which one is skipped", quota.Hour, 6, "Europe/Berlin", "2027-03-28T00:00:00Z", "2027-03-27T23:00:00Z", "2027-03-28T04:00:00Z"},
	{"two hours, the first of which is skipped", quota.Hour, 2, "Europe/Berlin", "2027-03-28T01:00:00Z", "2027-03-28T01:00:00Z", "2027-03-28T02:00:00Z"},
	{"seven hours do not divide a day", quota.Hour, 7, "UTC", "1970-01-01T23:00:00Z", "1970-01-01T21:00:00Z", "1970-01-02T04:00:00Z"},
	{"three days", quota.Day, 3, "UTC", "1970-01-03T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-04T00:00:00Z"},
	{"three days, later", quota.Day, 3, "UTC", "2026-11-30T12:00:00Z", "2026-11-30T00:00:00Z", "2026-12-03T00:00:00Z"},
	{"three days, before 1970", quota.Day, 3, "UTC", "1969-12-31T12:00:00Z", "1969-12-29T00:00:00Z", "1970-01-01T00:00:00Z"},
	{"two days, the first of which was not", quota.Day, 2, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	{"two days before it", quota.Day, 2, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-28T10:00:00Z", "2011-12-30T10:00:00Z"},
	{"two weeks", quota.Week, 2, "UTC", "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-12T00:00:00Z"},
	{"a quarter", quota.Month, 3, "Europe/Berlin", "2026-12-31T22:59:59Z", "2026-09-30T22:00:00Z", "2026-12-31T23:00:00Z"},
	{"five months", quota.Month, 5, "UTC", "1970-05-31T00:00:00Z", "1970-01-01T00:00:00Z", "1970-06-01T00:00:00Z"},
	{"a quarter from the 31st", quota.Billing, 3, "UTC", "2027-02-28T12:00:00Z", "2027-01-31T00:00:00Z", "2027-04-30T00:00:00Z"},
	{"a quarter before the 31st", quota.Billing, 3, "UTC", "2027-01-30T12:00:00Z", "2026-10-31T00:00:00Z", "2027-01-31T00:00:00Z"},
	{"five years", quota.Year, 5, "UTC", "2026-06-01T00:00:00Z", "2025-01-01T00:00:00Z", "2030-01-01T00:00:00Z"},
	{"a hundred years", quota.Year, 100, "Europe/Berlin", "2026-06-01T00:00:00Z", "1969-12-31T23:00:00Z", "2069-12-31T23:00:00Z"},
	{"a hundred years, before 1970", quota.Year, 100, "UTC", "1969-06-01T00:00:00Z", "1870-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
	{"a hundred years of hours", quota.Hour, 876_000, "UTC", "2026-06-01T00:00:00Z", "1970-01-01T00:00:00Z", "2069-12-07T00:00:00Z"},
}

// P12: windows of several units are counted from 1970.
func TestWindowOfSeveralUnits_P12(t *testing.T) {
	t.Parallel()
	for _, tt := range timesTests {
		c := quota.Calendar{Kind: tt.kind, Anchor: 31, Zone: zone(t, tt.zone), Times: tt.times}
		w := c.Window(at(t, tt.at))
		if !w.Start.Equal(at(t, tt.start)) || !w.End.Equal(at(t, tt.end)) {
			t.Errorf("%s: window of %s: got %s to %s, want %s to %s", tt.name, tt.at,
				w.Start.Format(time.RFC3339), w.End.Format(time.RFC3339), tt.start, tt.end)
		}
	}
}

// Ids are parts of stored keys: a change of this test is a change of the format. Those of
// windows of one unit are what they were before there were others.
func TestWindowIDOfSeveralUnits_P12(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-30T12:00:00Z")
	for times, want := range map[int]string{
		-1: "hour@2026-11-30T12:00Z", 0: "hour@2026-11-30T12:00Z", 1: "hour@2026-11-30T12:00Z",
		2: "hour2@2026-11-30T12:00Z", 12: "hour12@2026-11-30T12:00Z",
	} {
		if got := (quota.Calendar{Kind: quota.Hour, Times: times}).Window(now).ID; got != want {
			t.Errorf("id of a window of %d hours: got %s, want %s", times, got, want)
		}
	}
	ids := map[string]string{}
	for _, kind := range kinds {
		for times := 1; times < 60; times++ {
			w := quota.Calendar{Kind: kind, Anchor: 1, Times: times}.Window(time.Unix(0, 0))
			if other, twice := ids[w.ID]; twice {
				t.Errorf("%s is the id of %d %v and of %s", w.ID, times, kind, other)
			}
			ids[w.ID] = fmt.Sprint(times, " ", kind)
		}
	}
}

// number counts the units of a kind from 1970 until what a local clock shows.
func number(c quota.Calendar, clock int64) int64 {
	down := func(a, b int64) int64 { return (a - ((a%b)+b)%b) / b }
	shown := time.Unix(clock, 0).UTC()
	months := int64(shown.Year())*12 + int64(shown.Month()) - 1970*12 - 1
	switch c.Kind {
	case quota.Hour:
		return down(clock, 3600)
	case quota.Day:
		return down(clock, 86400)
	case quota.Week:
		return down(clock+3*86400, 7*86400)
	case quota.Month:
		return months
	case quota.Year:
		return int64(shown.Year()) - 1970
	case quota.Billing:
		lastOfMonth := shown.AddDate(0, 0, 1).Month() != shown.Month()
		if shown.Day() < c.Anchor && !lastOfMonth {
			return months - 1
		}
		return months
	}
	panic("no kind")
}

// group is number in windows of c.
func group(c quota.Calendar, clock int64) int64 {
	n, times := number(c, clock), int64(c.Times)
	return (n - ((n%times)+times)%times) / times
}

// P12: around every change of the clock of every zone from 2000 on, windows are those
// that a walk over the local clock finds: one starts when the highest number so far is
// passed.
func TestSeveralUnitsAroundChanges_P12(t *testing.T) {
	t.Parallel()
	calendars := []quota.Calendar{
		{Kind: quota.Hour, Times: 2},
		{Kind: quota.Hour, Times: 6},
		{Kind: quota.Hour, Times: 7},
		{Kind: quota.Hour, Times: 24},
		{Kind: quota.Day, Times: 2},
		{Kind: quota.Day, Times: 3},
	}
	total := 0
	for i, h := range histories() {
		for _, ch := range h.changes {
			step := 15 * time.Minute
			if ch.at.Unix()%900 != 0 || ch.before%900 != 0 || ch.after%900 != 0 {
				step = time.Minute
			}
			c := calendars[(i+total)%len(calendars)]
			c.Zone = h.zone
			reach := 50 * time.Hour * time.Duration(c.Times)
			if c.Kind == quota.Hour {
				reach = max(30*time.Hour, 3*time.Hour*time.Duration(c.Times))
			}
			walk(t, c, ch.at.Add(-reach), ch.at.Add(reach), step)
			total++
		}
	}
	if total < 5000 {
		t.Errorf("got %d changes, want thousands: the test does not test", total)
	}
}

// walk checks the windows of c that lie between two instants.
func walk(t *testing.T, c quota.Calendar, from, to time.Time, step time.Duration) {
	t.Helper()
	var start time.Time
	highest := group(c, local(c.Zone, from))
	for now := from; now.Before(to); now = now.Add(step) {
		n := group(c, local(c.Zone, now))
		if n <= highest {
			continue
		}
		if !start.IsZero() {
			checkWindow(t, c, start, now)
		}
		start, highest = now, n
	}
}

// P12: windows of any number of units hold what they should, follow each other, and no
// two have one id.
func TestSeveralUnitsOfAnyInstant_P12(t *testing.T) {
	t.Parallel()
	names := strings.Fields(zoneNames)
	longest := map[quota.CalendarKind]int{
		quota.Hour: 876_000, quota.Day: 36_500, quota.Week: 5_200, quota.Month: 1_200, quota.Year: 100, quota.Billing: 1_200,
	}
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(names).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		c := quota.Calendar{
			Kind: kind, Anchor: rapid.IntRange(1, 31).Draw(t, "anchor"), Zone: loc,
			Times: rapid.OneOf(rapid.IntRange(2, 13), rapid.IntRange(2, longest[kind])).Draw(t, "times"),
		}
		now := time.Unix(rapid.Int64Range(-5e9, 9e9).Draw(t, "at"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		if rapid.Bool().Draw(t, "at a change") {
			if start, _ := now.In(loc).ZoneBounds(); !start.IsZero() {
				now = start.Add(time.Duration(rapid.Int64Range(-3, 3).Draw(t, "hours off")) * time.Hour)
			}
		}
		w := c.Window(now)
		if !w.Holds(now) || !w.Start.Before(w.End) {
			t.Fatalf("window of %v: got %v, want one that holds it", now, w)
		}
		length := w.End.Unix() - w.Start.Unix()
		within := w.Start.Add(time.Duration(rapid.Int64Range(0, length-1).Draw(t, "within")) * time.Second)
		for _, same := range []time.Time{w.Start, within, w.End.Add(-1)} {
			if got := c.Window(same); got != w {
				t.Fatalf("%v: %v is in %v", w, same, got)
			}
		}
		after, before := c.Window(w.End), c.Window(w.Start.Add(-1))
		if !after.Start.Equal(w.End) || !before.End.Equal(w.Start) || after.ID == w.ID || before.ID == w.ID {
			t.Fatalf("%v: before it is %v, after it %v", w, before, after)
		}
		// What its local clock shows first belongs to it, and nothing before has shown it.
		n := group(c, local(loc, w.Start))
		for range 10 {
			earlier := w.Start.Add(-time.Duration(rapid.Int64Range(1, int64(60*time.Hour)).Draw(t, "before")))
			if got := group(c, local(loc, earlier)); got >= n {
				t.Fatalf("%v: %v already shows %v", w, earlier, time.Unix(local(loc, earlier), 0).UTC())
			}
		}
	})
}

// P12: a window that is made of other windows begins and ends where they do.
func TestSeveralUnitsAreUnits_P12(t *testing.T) {
	t.Parallel()
	for _, h := range histories() {
		for _, kind := range []quota.CalendarKind{quota.Month, quota.Year, quota.Billing, quota.Week} {
			one := quota.Calendar{Kind: kind, Anchor: 31, Zone: h.zone}
			many := one
			many.Times = 3
			w := many.Window(at(t, "2011-12-30T12:00:00Z"))
			units, end := 0, w.Start
			for ; end.Before(w.End); end = one.Window(end).End {
				units++
			}
			if units != 3 || !end.Equal(w.End) {
				t.Fatalf("%v in %v: %v is made of %d, until %v", kind, h.zone, w, units, end)
			}
		}
	}
}

func BenchmarkWindowOfSeveralUnits(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.String(), func(b *testing.B) {
			c := quota.Calendar{Kind: kind, Anchor: 31, Zone: zone(b, "America/Santiago"), Times: 6}
			now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				c.Window(now)
			}
		})
	}
}
