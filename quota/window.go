package quota

import (
	"strconv"
	"time"
)

// A CalendarKind is a way to cut time into windows.
type CalendarKind int

// The kinds of calendars. The zero CalendarKind is none of them.
const (
	Hour    CalendarKind = iota + 1
	Day                  // a local date
	Week                 // from Monday (ISO 8601)
	Month                // a calendar month
	Year                 // a calendar year
	Billing              // a month that starts on the anchor day
)

// String returns the name that window ids start with. It is part of stored keys
// and never changes.
func (k CalendarKind) String() string {
	switch k {
	case Hour:
		return "hour"
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	case Year:
		return "year"
	case Billing:
		return "billing"
	}
	return "unknown"
}

// A Calendar is a rule that cuts time into windows: every instant is in exactly
// one, and where one ends the next one starts.
//
// A window starts at the first instant at which the local date is in it. That is
// not always midnight: where the clock skips midnight a day starts at one. A date
// that the clock goes back out of has started all the same, and is not started
// again; a date that the zone skips has no window. An hour is a run of instants
// with one local hour and one UTC offset: an hour that the clock repeats is two
// windows, and a change amid an hour cuts it.
//
// Windows of several units, see Times, are counted by the local clock from 1970: days
// from January 1, hours from its midnight, weeks from the Monday before it, months and
// billing months from January. They start as a day does, at the first instant at which
// the local clock shows their beginning or later. So windows of as many hours as divide a
// day begin again at midnight; a change of the clock makes one of them longer or shorter
// and cuts none, as it may cut a single hour.
//
// The time zone of the host has no effect.
type Calendar struct {
	Kind   CalendarKind
	Anchor int            // of Billing: the day, 1 to 31; a shorter month starts on its last day
	Zone   *time.Location // nil: UTC
	Times  int            // how many units a window lasts, up to a million; 0 and less is 1
}

// A Window is one run of a quota, from Start until just before End.
type Window struct {
	// ID tells this window from every other of its kind, and of as many units. It
	// holds no slash.
	ID         string
	Start, End time.Time // in UTC
}

// Window returns the window that holds at. It takes the same time for every at:
// nothing is walked from one window to the next. A Calendar of no known kind is
// the caller's mistake, and panics.
func (c Calendar) Window(at time.Time) Window {
	zone := c.Zone
	if zone == nil {
		zone = time.UTC
	}
	sec := at.Unix()
	if c.Kind == Hour && c.Times <= 1 {
		start, end := hour(zone, sec)
		return newWindow(c.Kind.String(), start, end)
	}
	start, end := c.clocked(zone, sec)
	if c.Times > 1 { // no name of a kind ends with a digit
		return newWindow(c.Kind.String()+strconv.Itoa(c.Times), start, end)
	}
	return newWindow(c.Kind.String(), start, end)
}

// How the start of a window is written in its id.
const (
	minuteLayout = "2006-01-02T15:04Z07:00"
	secondLayout = "2006-01-02T15:04:05Z07:00"
)

// newWindow returns the window of two instants in Unix seconds.
func newWindow(kind string, start, end int64) Window {
	w := Window{Start: time.Unix(start, 0).UTC(), End: time.Unix(end, 0).UTC()}
	layout := minuteLayout
	if w.Start.Second() != 0 { // a zone of old, with an offset of odd seconds
		layout = secondLayout
	}
	w.ID = kind + "@" + w.Start.Format(layout)
	return w
}

// Holds reports whether at is in w.
func (w Window) Holds(at time.Time) bool {
	return !at.Before(w.Start) && at.Before(w.End)
}

// RetryAfter returns how long it is from now until w is over; 0 if it is.
func (w Window) RetryAfter(now time.Time) time.Duration {
	return max(0, w.End.Sub(now))
}

// EndOfMinute returns the instant that decides which window a request belongs to
// that started at t: the end of the minute it started in (A17). An instant on a
// full minute starts that minute. Minutes are those of UTC; in zones of old whose
// offset has odd seconds they are not the minutes of the local clock.
func EndOfMinute(t time.Time) time.Time {
	return t.Truncate(time.Minute).Add(time.Minute)
}

// clocked returns the window around sec of a calendar whose windows begin when the local
// clock shows a certain time.
//
// Local times are handled as instants of UTC, whose clock never changes.
func (c Calendar) clocked(zone *time.Location, sec int64) (start, end int64) {
	first := c.first(time.Unix(sec+offset(zone, sec), 0).UTC())
	start = reached(zone, first.Unix())
	for {
		next := c.plus(first, max(1, c.Times))
		end = reached(zone, next.Unix())
		// Mostly so at once. Not where the clock went back out of a window that
		// had started before sec, or on the way over skipped ones.
		if sec < end {
			return start, end
		}
		first, start = next, end
	}
}

// first returns the beginning of the window that the local time is in.
func (c Calendar) first(local time.Time) time.Time {
	first := c.unit(local)
	if c.Times > 1 {
		first = c.plus(first, -int(mod(c.number(first), int64(c.Times))))
	}
	return first
}

// unit returns the beginning of the unit that the local time is in.
func (c Calendar) unit(local time.Time) time.Time {
	y, m, d := local.Date()
	switch c.Kind {
	case Hour:
		return local.Truncate(time.Hour)
	case Day:
		return date(y, m, d)
	case Week:
		sinceMonday := (int(local.Weekday()) + 6) % 7
		return date(y, m, d-sinceMonday)
	case Month:
		return date(y, m, 1)
	case Year:
		return date(y, time.January, 1)
	case Billing:
		if first := c.anchor(y, m); !local.Before(first) {
			return first
		}
		return c.anchor(y, m-1)
	}
	panic("quota: Window of a Calendar without a kind")
}

// number counts units from 1970 on; that which begins at first.
func (c Calendar) number(first time.Time) int64 {
	const hour, day, thursday = 3600, 24 * 3600, 3 // after the Monday of that week
	y, m, _ := first.Date()
	switch c.Kind {
	case Hour:
		return first.Unix() / hour
	case Day:
		return first.Unix() / day
	case Week:
		return (first.Unix()/day + thursday) / 7
	case Month, Billing:
		return int64(y-1970)*12 + int64(m-time.January)
	case Year:
		return int64(y - 1970)
	}
	panic("quota: Window of a Calendar without a kind")
}

// plus returns the beginning of the unit that is n after the one that begins at first.
func (c Calendar) plus(first time.Time, n int) time.Time {
	y, m, d := first.Date()
	switch c.Kind {
	case Hour:
		return time.Unix(first.Unix()+3600*int64(n), 0).UTC()
	case Day:
		return date(y, m, d+n)
	case Week:
		return date(y, m, d+7*n)
	case Month:
		return date(y, m+time.Month(n), 1)
	case Year:
		return date(y+n, time.January, 1)
	case Billing:
		return c.anchor(y, m+time.Month(n))
	}
	panic("quota: Window of a Calendar without a kind")
}

// anchor returns the anchor day of a month, or its last day if it is shorter.
func (c Calendar) anchor(y int, m time.Month) time.Time {
	last := date(y, m+1, 0).Day()
	return date(y, m, min(max(1, c.Anchor), last))
}

func date(y int, m time.Month, d int) time.Time {
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// maxOffset is more seconds than any zone ever was away from UTC: Manila and
// Alaska came close to 16 hours before they changed sides of the date line.
const maxOffset = 24 * 3600

// reached returns the first instant at which the local clock of zone shows local
// or later. It need not show local itself, and may go back behind it afterwards.
func reached(zone *time.Location, local int64) int64 {
	for sec := local - maxOffset; ; {
		until := changes(zone, sec)
		if t := max(sec, local-offset(zone, sec)); t < until {
			return t
		}
		sec = until
	}
}

// hour returns the run of instants around sec with one local hour and one offset.
func hour(zone *time.Location, sec int64) (start, end int64) {
	off := offset(zone, sec)
	start = sec - mod(sec+off, 3600)
	end = start + 3600
	for t := changes(zone, start); t < end; t = changes(zone, t) {
		switch {
		case offset(zone, t-1) == offset(zone, t): // the name alone has changed
		case t <= sec:
			start = t
		default:
			return start, t
		}
	}
	return start, end
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// offset returns the seconds that zone is ahead of UTC at sec.
func offset(zone *time.Location, sec int64) int64 {
	_, off := time.Unix(sec, 0).In(zone).Zone()
	return int64(off)
}

// changes returns an instant after sec until which the offset of zone stays what
// it is at sec; mostly the next at which it changes.
func changes(zone *time.Location, sec int64) int64 {
	at := time.Unix(sec, 0).In(zone)
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return 1 << 62
	}
	if t := end.Unix(); t > sec {
		return t
	}
	// Go 1.26 counts 365 days in every year that a zone's rule goes on into, so
	// that on the last day of a leap year the offset seems to have ended before.
	return date(at.UTC().Year()+1, time.January, 1).Unix()
}
