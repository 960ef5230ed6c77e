package quota_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/quota"
)

var kinds = []quota.CalendarKind{quota.Hour, quota.Day, quota.Week, quota.Month, quota.Year, quota.Billing}

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
