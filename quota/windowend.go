package quota

import (
	"strconv"
	"strings"
	"time"
)

// LatestEnd returns an instant by which the window with an id is over, whatever its time
// zone: less than two days, or a part of the window, after its end. ok is false for what is
// no id of a calendar's window.
func LatestEnd(id string) (end time.Time, ok bool) {
	name, at, _ := strings.Cut(id, "@")
	start, err := time.Parse(minuteLayout, at)
	if err != nil {
		start, err = time.Parse(secondLayout, at)
	}
	kind := strings.TrimRight(name, "0123456789")
	times := 1
	if digits := name[len(kind):]; digits != "" {
		var bad error
		if times, bad = strconv.Atoi(digits); bad != nil || times < 2 {
			return time.Time{}, false
		}
	}
	if err != nil {
		return time.Time{}, false
	}
	const clockChange = 1 // day: no zone ever moved its clock by more
	switch kind {
	case Hour.String():
		return start.Add(time.Duration(times)*time.Hour).AddDate(0, 0, clockChange*min(1, times-1)), true
	case Day.String():
		return start.AddDate(0, 0, times+clockChange), true
	case Week.String():
		return start.AddDate(0, 0, 7*times+clockChange), true
	case Month.String(), Billing.String():
		return start.AddDate(0, 0, 31*times+clockChange), true
	case Year.String():
		return start.AddDate(0, 0, 366*times+clockChange), true
	}
	return time.Time{}, false
}
