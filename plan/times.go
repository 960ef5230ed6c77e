package plan

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// duration reads a length of time between lowest and highest.
func (r *reader) duration(n *node, path string, lowest, highest time.Duration) (time.Duration, bool) {
	if n.kind == numberNode {
		r.fail(n, path, "%s has no unit; write %ss", short(n.text), short(n.text))
		return 0, false
	}
	s, ok := r.text(n, path)
	if !ok {
		return 0, false
	}
	d, ok := parseDuration(s)
	switch {
	case !ok:
		r.fail(n, path, "%q is not a duration; write %s", short(s), suggestDuration(s))
	case d < lowest:
		r.fail(n, path, "%s is shorter than %s, the least that may be written here", s, shownDuration(lowest))
	case d > highest:
		r.fail(n, path, "%s is longer than %s, the most that may be written here", s, shownDuration(highest))
	default:
		return d, true
	}
	return 0, false
}

// parseDuration reads "1h30m". Sums that no time.Duration can hold become the
// longest one.
func parseDuration(s string) (time.Duration, bool) {
	const longest = time.Duration(1<<63 - 1)
	total := time.Duration(0)
	for parts := 0; ; parts++ {
		if s == "" {
			return total, parts > 0
		}
		digits := 0
		for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits > 9 || parts == 5 {
			return 0, false
		}
		v, _ := strconv.ParseInt(s[:digits], 10, 64)
		s = s[digits:]
		var unit time.Duration
		switch {
		case strings.HasPrefix(s, "ms"):
			unit, s = time.Millisecond, s[2:]
		case strings.HasPrefix(s, "s"):
			unit, s = time.Second, s[1:]
		case strings.HasPrefix(s, "m"):
			unit, s = time.Minute, s[1:]
		case strings.HasPrefix(s, "h"):
			unit, s = time.Hour, s[1:]
		case strings.HasPrefix(s, "d"):
			unit, s = 24*time.Hour, s[1:]
		default:
			return 0, false
		}
		if time.Duration(v) > (longest-total)/unit {
			total = longest
			continue
		}
		total += time.Duration(v) * unit
	}
}

// suggestDuration guesses what s was meant to be.
func suggestDuration(s string) string {
	digits := strings.TrimLeft(s, " ")
	word := strings.TrimLeft(digits, "0123456789")
	n, err := strconv.ParseInt(digits[:len(digits)-len(word)], 10, 32)
	word = strings.ToLower(strings.TrimSpace(word))
	if err != nil || n <= 0 {
		return "1m or 60s"
	}
	for _, u := range []struct{ prefix, text string }{
		{"mil", "%[1]dms"},
		{"ms", "%[1]dms"},
		{"s", "%[1]ds"},
		{"m", "%[1]dm or %[2]ds"},
		{"h", "%[1]dh or %[2]dm"},
		{"d", "%[1]dd"},
		{"w", "%[3]dd"},
		{"y", "%[4]dd"},
	} {
		if strings.HasPrefix(word, u.prefix) && !strings.HasPrefix(word, "mo") {
			all := fmt.Sprintf(u.text, n, 60*n, 7*n, 365*n)
			all, _, _ = strings.Cut(all, "%!(EXTRA")
			return all
		}
	}
	return "1m or 60s"
}

func shownDuration(d time.Duration) string {
	switch {
	case d >= 24*time.Hour && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d > time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d >= time.Second && d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

func (o *object) duration(name string, otherwise, lowest, highest time.Duration) time.Duration {
	n := o.field(name)
	if n == nil {
		return otherwise
	}
	if d, ok := o.reader.duration(n, o.at(name), lowest, highest); ok {
		return d
	}
	return otherwise
}

// percent reads "12.5%" as hundredths of a percent.
func (r *reader) percent(n *node, path string, lowest, highest int64) (int64, bool) {
	if n.kind == numberNode {
		r.fail(n, path, "%s has no %%; write %s%%", short(n.text), short(n.text))
		return 0, false
	}
	s, ok := r.text(n, path)
	if !ok {
		return 0, false
	}
	v, ok := parsePercent(s)
	switch {
	case !ok:
		r.fail(n, path, "%q is not a percentage; write 0%% to 100%% with at most two digits behind the point, such as 10%% or 12.5%%", short(s))
	case v < lowest || v > highest:
		r.fail(n, path, "%s is not between %d%% and %d%%", s, lowest/100, highest/100)
	default:
		return v, true
	}
	return 0, false
}

func parsePercent(s string) (int64, bool) {
	s, ok := strings.CutSuffix(s, "%")
	whole, part, point := strings.Cut(s, ".")
	if !ok || len(whole) < 1 || len(whole) > 3 || point && (len(part) < 1 || len(part) > 2) ||
		strings.Trim(whole+part, "0123456789") != "" || len(whole) == 3 && whole != "100" {
		return 0, false
	}
	v, err := strconv.ParseInt(whole+(part + "00")[:2], 10, 64)
	return v, err == nil && v <= 10000
}

func (o *object) percent(name string, otherwise, lowest, highest int64) int64 {
	n := o.field(name)
	if n == nil {
		return otherwise
	}
	if v, ok := o.reader.percent(n, o.at(name), lowest, highest); ok {
		return v
	}
	return otherwise
}

// zone reads the name of a time zone. Only what is spelled like one reaches the
// zone data, which may be files.
func (o *object) zone(n *node, path string) *time.Location {
	s, ok := o.reader.text(n, path)
	if !ok {
		return nil
	}
	if isZone(s) {
		if zone, err := LoadZone(s); err == nil {
			return zone
		}
	}
	o.fail(n, path, "%q is not a known time zone; write UTC or a name such as Europe/Berlin", short(s))
	return nil
}

// isZone reports whether s is spelled like a zone of the IANA: UTC, or two or three
// words with slashes between.
func isZone(s string) bool {
	if s == "UTC" {
		return true
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	words := strings.Split(s, "/")
	if len(words) < 2 || len(words) > 3 || len(words[0]) < 2 || words[0][0] < 'A' || words[0][0] > 'Z' || strings.Trim(words[0], letters) != "" {
		return false
	}
	for _, w := range words[1:] {
		if w == "" || strings.Trim(w, letters+"0123456789+-") != "" {
			return false
		}
	}
	return true
}

func (o *object) webAddress(name string, schemes ...string) string {
	n := o.field(name)
	if n == nil {
		return ""
	}
	s, ok := o.reader.text(n, o.at(name))
	if !ok {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) || len(s) > 2000 || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) {
		o.fail(n, o.at(name), "%q is not an address; write %s://example.com/path, in ASCII", short(s), schemes[0])
		return ""
	}
	return s
}

// instant reads a date and time with its offset.
func (o *object) instant(name string) time.Time {
	n := o.field(name)
	if n == nil {
		return time.Time{}
	}
	if n.kind == stringNode {
		if t, err := time.Parse(time.RFC3339, n.text); err == nil && t.Year() >= 1970 {
			return t
		}
	}
	o.fail(n, o.at(name), "%s is not an instant; write one such as 2026-12-31T23:59:59Z", n.shown())
	return time.Time{}
}

// date reads a day as its midnight in zone.
func (r *reader) date(n *node, path string, zone *time.Location) time.Time {
	if n.kind == stringNode {
		if t, err := time.ParseInLocation(time.DateOnly, n.text, zone); err == nil && t.Year() >= 1970 {
			return t
		}
	}
	r.fail(n, path, "%s is not a day; write one such as 2026-01-31", n.shown())
	return time.Time{}
}
