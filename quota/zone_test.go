package quota_test

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // so that the tests run where no zones are installed

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

// zoneNames are the zones of the IANA database, as Go 1.26 brings them.
//
//go:embed testdata/zones.txt
var zoneNames string

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return loc
}

// C064: the names that come with the binary are there; others are errors.
func TestZoneNames(t *testing.T) {
	for _, name := range []string{"Mars/Base", "../../etc/passwd"} {
		if loc, err := time.LoadLocation(name); err == nil {
			t.Errorf("zone %s: got %v, want an error", name, loc)
		}
	}
}

// A local is an instant of one zone as its clock shows it, as seconds of UTC.
func local(zone *time.Location, at time.Time) int64 {
	_, off := at.In(zone).Zone()
	return at.Unix() + int64(off)
}

// A change is an instant at which the clock of a zone is changed.
type change struct {
	at            time.Time
	before, after int // offsets
}

// changes finds the changes of a zone between two instants by looking once a
// week. It does not use Time.ZoneBounds, which the code under test does.
func changes(zone *time.Location, from, to time.Time) []change {
	var found []change
	offset := func(sec int64) int {
		_, off := time.Unix(sec, 0).In(zone).Zone()
		return off
	}
	const step = 7 * 24 * 3600
	lo := from.Unix()
	before := offset(lo)
	for ; lo < to.Unix(); lo += step {
		after := offset(lo + step)
		if after == before {
			continue
		}
		a, b := lo, lo+step
		for b-a > 1 {
			if m := a + (b-a)/2; offset(m) == before {
				a = m
			} else {
				b = m
			}
		}
		// Two changes in one step: the other is found from here on.
		found = append(found, change{time.Unix(b, 0).UTC(), before, offset(b)})
		before = offset(b)
		lo = b - step
	}
	return found
}

// A history is what has become of the clock of a zone, and will.
type history struct {
	zone    *time.Location
	changes []change
}

// histories are those of all zones from 2000 to 2040, without the zones that do
// as another one does.
var histories = sync.OnceValue(func() []history {
	from := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	var all []history
	seen := map[string]bool{}
	for _, name := range strings.Fields(zoneNames) {
		loc, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		found := changes(loc, from, from.AddDate(41, 0, 0))
		print := fmt.Sprint(local(loc, from), found)
		if !seen[print] {
			seen[print] = true
			all = append(all, history{loc, found})
		}
	}
	return all
})

// TestDaysAndHoursAroundChanges compares with a walk over the local clock, a
// minute or a quarter at a time, around every change of every zone from 2000 on.
func TestDaysAndHoursAroundChanges(t *testing.T) {
	t.Parallel()
	total := 0
	for _, h := range histories() {
		zone := h.zone
		for _, ch := range h.changes {
			total++
			step := 15 * time.Minute
			if ch.at.Unix()%900 != 0 || ch.before%900 != 0 || ch.after%900 != 0 {
				step = time.Minute
			}
			// A day starts when the highest date so far is passed.
			day := quota.Calendar{Kind: quota.Day, Zone: zone}
			highest, start := int64(0), time.Time{}
			for now := ch.at.Add(-50 * time.Hour); now.Before(ch.at.Add(50 * time.Hour)); now = now.Add(step) {
				date := local(zone, now) / 86400
				if date <= highest {
					continue
				}
				if !start.IsZero() {
					checkWindow(t, day, start, now)
				}
				if highest != 0 {
					start = now
				}
				highest = date
			}
			// An hour ends when the hour or the offset changes.
			hour := quota.Calendar{Kind: quota.Hour, Zone: zone}
			last, start := [2]int64{}, time.Time{}
			for now := ch.at.Add(-3 * time.Hour); now.Before(ch.at.Add(3 * time.Hour)); now = now.Add(step) {
				clock := local(zone, now)
				is := [2]int64{clock / 3600, clock - now.Unix()}
				if is == last {
					continue
				}
				if !start.IsZero() {
					checkWindow(t, hour, start, now)
				}
				if last != [2]int64{} {
					start = now
				}
				last = is
			}
		}
	}
	if total < 5000 {
		t.Errorf("got %d changes, want thousands: the test does not test", total)
	}
}

// checkWindow checks that c has a window from start to end.
func checkWindow(t *testing.T, c quota.Calendar, start, end time.Time) {
	t.Helper()
	w := c.Window(start)
	if !w.Start.Equal(start) || !w.End.Equal(end) {
		t.Fatalf("%v in %v at %v: got %v to %v, want until %v", c.Kind, c.Zone, start, w.Start, w.End, end)
	}
	for _, now := range []time.Time{start.Add(end.Sub(start) / 2), end.Add(-1)} {
		if got := c.Window(now); got != w {
			t.Fatalf("%v in %v at %v: got %v, want %v", c.Kind, c.Zone, now, got, w)
		}
	}
}

// TestMonthsTile walks the months and years of all zones, and the billing months
// and weeks of some (C055).
func TestMonthsTile(t *testing.T) {
	t.Parallel()
	from, to := at(t, "2000-01-01T00:00:00Z"), at(t, "2041-01-01T00:00:00Z")
	for n, h := range histories() {
		checkTiles(t, quota.Calendar{Kind: quota.Month, Zone: h.zone}, from, to)
		checkTiles(t, quota.Calendar{Kind: quota.Year, Zone: h.zone}, from, to)
		if n%4 == 0 {
			checkTiles(t, quota.Calendar{Kind: quota.Billing, Anchor: 1 + n/4%31, Zone: h.zone}, from, to)
		}
		if n%40 == 0 {
			checkTiles(t, quota.Calendar{Kind: quota.Week, Zone: h.zone}, from, to)
		}
	}
}

// checkTiles walks the windows of c and checks that they tile, that each starts
// on the date it should, and that no two have one id.
func checkTiles(t *testing.T, c quota.Calendar, from, to time.Time) {
	t.Helper()
	length := map[quota.CalendarKind][2]float64{ // Casey has changed its clock by three hours
		quota.Week: {6.87, 7.13}, quota.Month: {27.87, 31.13}, quota.Billing: {27.87, 31.13}, quota.Year: {364.87, 366.13},
	}[c.Kind]
	ids := map[string]bool{}
	for w := c.Window(from); w.Start.Before(to); {
		if ids[w.ID] || strings.Contains(w.ID, "/") {
			t.Fatalf("%v in %v: the id %s is there twice, or has a slash", c.Kind, c.Zone, w.ID)
		}
		ids[w.ID] = true
		days := w.End.Sub(w.Start).Hours() / 24
		if name := c.Zone.String(); name == "Pacific/Apia" || name == "Pacific/Fakaofo" {
			days = max(days, length[0]) // they skipped a day in 2011
		}
		if days < length[0] || days > length[1] {
			t.Fatalf("%v in %v: %v has %v days", c.Kind, c.Zone, w, days)
		}
		clock := time.Unix(local(c.Zone, w.Start), 0).UTC()
		before := time.Unix(local(c.Zone, w.Start.Add(-1)), 0).UTC()
		if !starts(c, clock, before) {
			t.Fatalf("%v %d in %v: %s starts at %v local, after %v", c.Kind, c.Anchor, c.Zone, w.ID, clock, before)
		}
		next := c.Window(w.End)
		if !next.Start.Equal(w.End) || len(ids)%3 == 0 && c.Window(w.End.Add(-1)) != w {
			t.Fatalf("%v in %v: %v is followed by %v", c.Kind, c.Zone, w, next)
		}
		w = next
	}
}

// starts reports whether a window of c starts where the clock shows one time after
// another.
func starts(c quota.Calendar, clock, before time.Time) bool {
	if before.YearDay() == clock.YearDay() {
		return false
	}
	switch c.Kind {
	case quota.Week:
		return clock.Weekday() == time.Monday
	case quota.Month:
		return clock.Day() == 1
	case quota.Year:
		return clock.YearDay() == 1
	case quota.Billing:
		lastOfMonth := clock.AddDate(0, 0, 1).Day() == 1
		skipped := clock.Day() == c.Anchor+1 && before.Day() == c.Anchor-1
		return clock.Day() == c.Anchor || clock.Day() < c.Anchor && lastOfMonth || skipped
	case quota.Hour, quota.Day:
	}
	return true
}

// TestWindowsOfAnyInstant is the same for instants of any age, to which belong
// offsets of odd seconds and changes of sides at the date line.
func TestWindowsOfAnyInstant(t *testing.T) {
	t.Parallel()
	names := strings.Fields(zoneNames)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "zone")
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		c := quota.Calendar{
			Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			Anchor: rapid.IntRange(1, 31).Draw(t, "anchor"),
			Zone:   loc,
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
		if first, last := c.Window(w.Start), c.Window(w.End.Add(-1)); first != w || last != w {
			t.Fatalf("%v: its first instant is in %v, its last in %v", w, first, last)
		}
		if after, before := c.Window(w.End), c.Window(w.Start.Add(-1)); !after.Start.Equal(w.End) || !before.End.Equal(w.Start) {
			t.Fatalf("%v: before it is %v, after it %v", w, before, after)
		}
		// Nothing before Start shows a local time of this window or later.
		if c.Kind != quota.Hour {
			top := local(loc, w.Start)
			top -= top % 86400
			for range 20 {
				earlier := w.Start.Add(-time.Duration(rapid.Int64Range(1, int64(60*time.Hour)).Draw(t, "before")))
				if got := local(loc, earlier); got >= top && local(loc, w.Start)-top < 2*3600 {
					t.Fatalf("%v: %v already shows %v", w, earlier, time.Unix(got, 0).UTC())
				}
			}
		}
	})
}
