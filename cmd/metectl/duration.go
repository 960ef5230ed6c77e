package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// parseExpiry reads --expires: an instant, or how long from now. Days are allowed
// because people write 90d; a day is 24 hours.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		var d time.Duration
		d, err = parseSpan(s)
		at = now.Add(d).Truncate(time.Second)
	}
	if err != nil {
		return time.Time{}, usageError(fmt.Sprintf("--expires %s is not a time", s), "write 90d, 12h or 2027-01-31T00:00:00Z")
	}
	if !at.After(now) {
		return time.Time{}, usageError(fmt.Sprintf("--expires %s is over already", s), "name an instant to come")
	}
	return at.UTC(), nil
}

// parseSpan reads Go durations with days in front: 90d, 1d12h, 45m.
func parseSpan(s string) (time.Duration, error) {
	const maxDays = 36_500 // a century; more is a slip of the hand
	m := regexp.MustCompile(`^(?:([0-9]{1,6})d)?(.*)$`).FindStringSubmatch(s)
	var span time.Duration
	if m[1] != "" {
		days, err := strconv.Atoi(m[1])
		if err != nil || days > maxDays {
			return 0, fmt.Errorf("%q is too long", s)
		}
		span = time.Duration(days) * 24 * time.Hour
		if m[2] == "" {
			return span, nil
		}
	}
	rest, err := time.ParseDuration(m[2])
	if err != nil {
		return 0, err
	}
	return span + rest, nil
}

// spanText writes a span of whole milliseconds as documents do: 1m, 1h30m, 1d.
func spanText(d time.Duration) string {
	text := ""
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if n := d / unit.is; n > 0 {
			text += strconv.FormatInt(int64(n), 10) + unit.name
			d %= unit.is
		}
	}
	return text
}
