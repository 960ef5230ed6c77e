package quota_test

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
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

var kinds = []quota.CalendarKind{quota.Hour, quota.Day, quota.Week, quota.Month, quota.Year, quota.Billing}

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return loc
}

func at(tb testing.TB, s string) time.Time {
	tb.Helper()
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

var windowTests = []struct {
	name   string
	kind   quota.CalendarKind
	anchor int
	zone   string
	at     string
	start  string
	end    string
}{
	// C052: months have 28 to 31 days.
	{"December", quota.Month, 0, "UTC", "2026-12-31T23:58:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	{"January at its first instant", quota.Month, 0, "UTC", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"},
	{"February", quota.Month, 0, "UTC", "2027-02-28T23:59:59.999999999Z", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"},
	{"February of a leap year", quota.Month, 0, "UTC", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
	{"April", quota.Month, 0, "UTC", "2027-04-30T12:00:00Z", "2027-04-01T00:00:00Z", "2027-05-01T00:00:00Z"},
	// C053: a year is 365 or 366 days.
	{"year", quota.Year, 0, "UTC", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"},
	{"leap year", quota.Year, 0, "UTC", "2028-12-31T00:00:00Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"},
	// C055: a month after the 31st is not March.
	{"billing on the 31st, in February", quota.Billing, 31, "UTC", "2027-02-15T00:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"},
	{"billing on the 31st, from February", quota.Billing, 31, "UTC", "2027-02-28T00:00:00Z", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"},
	{"billing on the 31st, back to it", quota.Billing, 31, "UTC", "2027-03-31T00:00:00Z", "2027-03-31T00:00:00Z", "2027-04-30T00:00:00Z"},
	{"billing on the 30th, leap year", quota.Billing, 30, "UTC", "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z"},
	// A16: the period follows the customer's own.
	{"billing on the 15th, before it", quota.Billing, 15, "Europe/Berlin", "2026-01-14T22:59:59Z", "2025-12-14T23:00:00Z", "2026-01-14T23:00:00Z"},
	{"billing on the 15th, from it", quota.Billing, 15, "Europe/Berlin", "2026-03-14T23:00:00Z", "2026-03-14T23:00:00Z", "2026-04-14T22:00:00Z"},
	{"billing on the 1st is the month", quota.Billing, 1, "Europe/Berlin", "2026-11-30T23:00:00Z", "2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z"},
	// C057: a day that does not begin at midnight.
	{"São Paulo, before", quota.Day, 0, "America/Sao_Paulo", "2017-10-15T02:58:30Z", "2017-10-14T03:00:00Z", "2017-10-15T03:00:00Z"},
	{"São Paulo, from", quota.Day, 0, "America/Sao_Paulo", "2017-10-15T03:00:00Z", "2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z"},
	{"Santiago", quota.Day, 0, "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"},
	{"Cairo", quota.Day, 0, "Africa/Cairo", "2027-04-30T12:00:00Z", "2027-04-29T22:00:00Z", "2027-04-30T21:00:00Z"},
	// Days that the clock goes back out of or within, and days that are not.
	{"Havana, midnight twice", quota.Day, 0, "America/Havana", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
	{"Beirut, 23 o'clock twice", quota.Day, 0, "Asia/Beirut", "2026-10-24T21:30:00Z", "2026-10-23T21:00:00Z", "2026-10-24T22:00:00Z"},
	{"St. John's, out of the day again", quota.Day, 0, "America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
	{"St. John's, out of the month again", quota.Month, 0, "America/St_Johns", "2009-11-01T02:45:00Z", "2009-11-01T02:30:00Z", "2009-12-01T03:30:00Z"},
	{"Apia, before the day that was not", quota.Day, 0, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
	{"Apia, after the day that was not", quota.Day, 0, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	{"Apia, billing on the day that was not", quota.Billing, 30, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"},
	{"Kwajalein, after the day that was not", quota.Day, 0, "Pacific/Kwajalein", "1993-08-21T12:00:00Z", "1993-08-21T12:00:00Z", "1993-08-22T12:00:00Z"},
	// C060: days of 23 and 25 hours, and zones that do not change.
	{"Berlin, autumn", quota.Day, 0, "Europe/Berlin", "2026-10-24T22:00:30Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
	{"Berlin, spring", quota.Day, 0, "Europe/Berlin", "2027-03-27T23:00:30Z", "2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"},
	{"Shanghai", quota.Day, 0, "Asia/Shanghai", "2026-10-24T16:00:30Z", "2026-10-24T16:00:00Z", "2026-10-25T16:00:00Z"},
	{"Kolkata", quota.Day, 0, "Asia/Kolkata", "2027-03-27T18:30:30Z", "2027-03-27T18:30:00Z", "2027-03-28T18:30:00Z"},
	// The last day of a leap year, of which Go 1.26 says that the zone has ended.
	{"Berlin, last day of a leap year", quota.Day, 0, "Europe/Berlin", "2028-12-31T12:00:00Z", "2028-12-30T23:00:00Z", "2028-12-31T23:00:00Z"},
	{"Berlin, last hour of a leap year", quota.Hour, 0, "Europe/Berlin", "2028-12-31T22:30:00Z", "2028-12-31T22:00:00Z", "2028-12-31T23:00:00Z"},
	{"Santiago, first hour after a leap year", quota.Hour, 0, "America/Santiago", "2029-01-01T03:30:00Z", "2029-01-01T03:00:00Z", "2029-01-01T04:00:00Z"},
	// C062: zones far from UTC, at 23:30 and 00:30 on the edge of a month.
	{"Kiritimati, 23:30", quota.Month, 0, "Pacific/Kiritimati", "2026-11-30T09:30:00Z", "2026-10-31T10:00:00Z", "2026-11-30T10:00:00Z"},
	{"Kiritimati, 00:30", quota.Month, 0, "Pacific/Kiritimati", "2026-11-30T10:30:00Z", "2026-11-30T10:00:00Z", "2026-12-31T10:00:00Z"},
	{"Adak, 23:30", quota.Month, 0, "America/Adak", "2026-12-01T09:30:00Z", "2026-11-01T09:00:00Z", "2026-12-01T10:00:00Z"},
	{"Adak, 00:30", quota.Month, 0, "America/Adak", "2026-12-01T10:30:00Z", "2026-12-01T10:00:00Z", "2027-01-01T10:00:00Z"},
	// A13, A14: a calendar month in the app's zone.
	{"Berlin, November", quota.Month, 0, "Europe/Berlin", "2026-11-30T22:59:59Z", "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"},
	{"Berlin, December", quota.Month, 0, "Europe/Berlin", "2026-11-30T23:00:00Z", "2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z"},
	// Weeks run from Monday.
	{"Sunday", quota.Week, 0, "UTC", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
	{"Monday", quota.Week, 0, "UTC", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"},
	// Hours: of zones with odd offsets, repeated ones, and cut ones.
	{"Kolkata, an hour", quota.Hour, 0, "Asia/Kolkata", "2026-11-30T12:00:00Z", "2026-11-30T11:30:00Z", "2026-11-30T12:30:00Z"},
	{"Kathmandu, an hour", quota.Hour, 0, "Asia/Kathmandu", "2026-11-30T12:00:00Z", "2026-11-30T11:15:00Z", "2026-11-30T12:15:00Z"},
	{"Berlin, two o'clock", quota.Hour, 0, "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"},
	{"Berlin, two o'clock again", quota.Hour, 0, "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
	{"Lord Howe, spring, half past two on", quota.Hour, 0, "Australia/Lord_Howe", "2026-10-03T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
	{"Lord Howe, autumn, one o'clock", quota.Hour, 0, "Australia/Lord_Howe", "2027-04-03T14:59:00Z", "2027-04-03T14:00:00Z", "2027-04-03T15:00:00Z"},
	{"Lord Howe, autumn, half past one again", quota.Hour, 0, "Australia/Lord_Howe", "2027-04-03T15:00:00Z", "2027-04-03T15:00:00Z", "2027-04-03T15:30:00Z"},
}

func TestWindow(t *testing.T) {
	for _, tt := range windowTests {
		t.Run(tt.name, func(t *testing.T) {
			c := quota.Calendar{Kind: tt.kind, Anchor: tt.anchor, Zone: zone(t, tt.zone)}
			w := c.Window(at(t, tt.at))
			if !w.Start.Equal(at(t, tt.start)) || !w.End.Equal(at(t, tt.end)) {
				t.Errorf("window of %s: got %s to %s, want %s to %s", tt.at,
					w.Start.Format(time.RFC3339), w.End.Format(time.RFC3339), tt.start, tt.end)
			}
		})
	}
}

func TestWindowLength(t *testing.T) {
	tests := []struct {
		kind quota.CalendarKind
		zone string
		at   string
		want int64 // seconds
	}{
		{quota.Year, "UTC", "2028-06-01T00:00:00Z", 31_622_400},
		{quota.Year, "UTC", "2027-06-01T00:00:00Z", 31_536_000},
		{quota.Day, "Europe/Berlin", "2026-10-25T12:00:00Z", 90_000},
		{quota.Day, "Europe/Berlin", "2027-03-28T12:00:00Z", 82_800},
		// True lengths, as RateLimit-Policy tells them in w.
		{quota.Month, "Europe/Berlin", "2026-02-10T00:00:00Z", 2_419_200},
		{quota.Month, "Europe/Berlin", "2026-03-10T00:00:00Z", 2_674_800},
		{quota.Month, "Europe/Berlin", "2026-10-10T00:00:00Z", 2_682_000},
		{quota.Month, "Europe/Berlin", "2026-12-10T00:00:00Z", 2_678_400},
	}
	for _, tt := range tests {
		w := quota.Calendar{Kind: tt.kind, Zone: zone(t, tt.zone)}.Window(at(t, tt.at))
		if got := int64(w.End.Sub(w.Start) / time.Second); got != tt.want {
			t.Errorf("%v in %s at %s: got %d s, want %d s", tt.kind, tt.zone, tt.at, got, tt.want)
		}
	}
}

// Ids are parts of stored keys: a change of this test is a change of the format.
func TestWindowID(t *testing.T) {
	tests := []struct {
		c    quota.Calendar
		at   string
		want string
	}{
		{quota.Calendar{Kind: quota.Hour, Zone: zone(t, "Asia/Kathmandu")}, "2026-11-30T12:00:00Z", "hour@2026-11-30T11:15Z"},
		{quota.Calendar{Kind: quota.Day, Zone: zone(t, "Asia/Kolkata")}, "2026-11-30T12:00:00Z", "day@2026-11-29T18:30Z"},
		{quota.Calendar{Kind: quota.Week}, "2026-11-30T12:00:00Z", "week@2026-11-30T00:00Z"},
		{quota.Calendar{Kind: quota.Month, Zone: zone(t, "Europe/Berlin")}, "2026-12-24T12:00:00Z", "month@2026-11-30T23:00Z"},
		{quota.Calendar{Kind: quota.Year}, "2026-12-24T12:00:00Z", "year@2026-01-01T00:00Z"},
		{quota.Calendar{Kind: quota.Billing, Anchor: 31}, "2027-03-01T12:00:00Z", "billing@2027-02-28T00:00Z"},
		{quota.Calendar{Kind: quota.Day, Zone: zone(t, "Africa/Monrovia")}, "1950-06-01T12:00:00Z", "day@1950-06-01T00:44:30Z"},
	}
	for _, tt := range tests {
		if got := tt.c.Window(at(t, tt.at)).ID; got != tt.want {
			t.Errorf("id at %s: got %s, want %s", tt.at, got, tt.want)
		}
	}
}

// A Calendar without a kind is a mistake that must not turn into some window.
func TestWindowOfNoKind(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a window of the zero Calendar: got one, want a panic")
		}
	}()
	quota.Calendar{}.Window(at(t, "2026-11-30T12:00:00Z"))
}

// A17: the end of the minute decides.
func TestEndOfMinute(t *testing.T) {
	tests := []struct{ at, want string }{
		{"2026-11-30T23:58:00Z", "2026-11-30T23:59:00Z"},
		{"2026-11-30T23:58:59.999999999Z", "2026-11-30T23:59:00Z"},
		{"2026-11-30T23:59:00Z", "2026-12-01T00:00:00Z"},
		{"2026-11-30T23:59:00.000000001Z", "2026-12-01T00:00:00Z"},
		{"2026-12-01T00:00:00Z", "2026-12-01T00:01:00Z"},
		{"2026-12-01T05:29:30+05:30", "2026-12-01T00:00:00Z"},
		{"1969-12-31T23:59:30Z", "1970-01-01T00:00:00Z"},
	}
	for _, tt := range tests {
		if got := quota.EndOfMinute(at(t, tt.at)); !got.Equal(at(t, tt.want)) {
			t.Errorf("end of the minute of %s: got %s, want %s", tt.at, got, tt.want)
		}
	}
}

// A17 and C057 together: what a request at the edge of a day counts toward.
func TestRequestAtTheEdge(t *testing.T) {
	tests := []struct{ zone, at, start string }{
		{"America/Sao_Paulo", "2017-10-15T01:30:00Z", "2017-10-14T03:00:00Z"},
		{"America/Sao_Paulo", "2017-10-15T02:30:00Z", "2017-10-14T03:00:00Z"},
		{"America/Sao_Paulo", "2017-10-15T02:58:30Z", "2017-10-14T03:00:00Z"},
		{"America/Sao_Paulo", "2017-10-15T02:59:00Z", "2017-10-15T03:00:00Z"},
		{"America/Sao_Paulo", "2017-10-15T03:00:00Z", "2017-10-15T03:00:00Z"},
		{"UTC", "2026-12-31T23:58:00Z", "2026-12-31T00:00:00Z"},
		{"UTC", "2026-12-31T23:59:00Z", "2027-01-01T00:00:00Z"},
	}
	for _, tt := range tests {
		c := quota.Calendar{Kind: quota.Day, Zone: zone(t, tt.zone)}
		if got := c.Window(quota.EndOfMinute(at(t, tt.at))).Start; !got.Equal(at(t, tt.start)) {
			t.Errorf("a request in %s at %s: got the day from %s, want from %s", tt.zone, tt.at, got, tt.start)
		}
	}
}

// C069: whatever the instant, the reset that is shown lies in the future, and it
// is the boundary that decides.
func TestResetIsAhead(t *testing.T) {
	c := quota.Calendar{Kind: quota.Month}
	for _, s := range []string{"2026-03-05T10:00:00Z", "2026-02-28T23:59:59.999999999Z", "2026-03-01T00:00:00Z"} {
		now := at(t, s)
		w := c.Window(now)
		wait := w.RetryAfter(now)
		if wait <= 0 {
			t.Errorf("wait at %s: got %v, want one above 0", s, wait)
		}
		if now = now.Add(wait); w.Holds(now) || !w.Holds(now.Add(-1)) || c.Window(now).ID == w.ID {
			t.Errorf("at %s wait %v: want it to lead to the first instant of the next window", s, wait)
		}
	}
	w := c.Window(at(t, "2026-03-05T10:00:00Z"))
	if got := w.RetryAfter(at(t, "2026-05-01T00:00:00Z")); got != 0 {
		t.Errorf("wait for a window that is over: got %v, want 0", got)
	}
	if got := c.Window(at(t, "2026-03-01T00:00:00Z")).RetryAfter(at(t, "2026-03-31T23:59:59.999Z")); got != time.Millisecond {
		t.Errorf("wait 1 ms before the end: got %v, want 1ms (C127)", got)
	}
}

// C062: the zone of the host, and the zone that an instant is written in, have no
// effect. The zone of the host is read once a process, so this takes others.
func TestHostZoneHasNoEffect(t *testing.T) {
	const marker = "METE_TEST_PRINT_WINDOWS"
	instant := at(t, "2026-11-30T23:30:00+14:00")
	var here strings.Builder
	for _, kind := range kinds {
		for _, loc := range []*time.Location{nil, time.UTC, zone(t, "Pacific/Kiritimati"), zone(t, "America/Adak")} {
			c := quota.Calendar{Kind: kind, Anchor: 31, Zone: loc}
			w := c.Window(instant)
			for _, same := range []time.Time{instant.UTC(), instant.Local(), instant.In(zone(t, "Asia/Tokyo"))} {
				if got := c.Window(same); got != w {
					t.Errorf("%v: got %v for %v, want %v as for %v", c, got, same, w, instant)
				}
			}
			fmt.Fprintf(&here, "[%s %s %s]", w.ID, w.Start, w.End)
		}
	}
	if os.Getenv(marker) != "" {
		fmt.Println(here.String())
		return
	}
	for _, tz := range []string{"", "Pacific/Kiritimati", "America/Adak", "Mars/Base"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostZoneHasNoEffect$")
		cmd.Env = append(os.Environ(), "TZ="+tz, marker+"=1", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), here.String()) {
			t.Errorf("with TZ=%q: got %s (%v), want %s", tz, out, err, here.String())
		}
	}
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

// starts tells whether a window of c starts where the clock shows one time after
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

// C068: a window is not reached by walking, however long ago the last one was.
func BenchmarkWindow(b *testing.B) {
	for _, kind := range kinds {
		for _, year := range []int{2026, 2099} {
			b.Run(fmt.Sprint(kind, "/", year), func(b *testing.B) {
				c := quota.Calendar{Kind: kind, Anchor: 31, Zone: zone(b, "America/Santiago")}
				now := time.Date(year, time.November, 30, 12, 0, 0, 0, time.UTC)
				b.ReportAllocs()
				for b.Loop() {
					c.Window(now)
				}
			})
		}
	}
}
