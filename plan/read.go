package plan

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A reader reads the values of one document and collects what is wrong.
type reader struct {
	file     string
	index    int
	kind     Kind
	name     string
	lines    int // before the document
	problems []Problem
	places   map[string]pos // of every value, by path
}

func (r *reader) add(at pos, path, message string) *Problem {
	if at.line > 0 {
		at.line += r.lines
	}
	r.problems = append(r.problems, Problem{
		File: r.file, Line: at.line, Col: at.col, Index: r.index,
		Path: path, Message: message,
	})
	return &r.problems[len(r.problems)-1]
}

func (r *reader) fail(n *node, path, format string, args ...any) {
	r.add(n.pos, path, fmt.Sprintf(format, args...))
}

func (r *reader) warn(n *node, path, format string, args ...any) {
	r.add(n.pos, path, fmt.Sprintf(format, args...)).Warning = true
}

func (r *reader) unsupported(n *node, path string, f feature) {
	r.add(n.pos, path, f.message()).Unsupported = true
}

// An object reads the fields of a map. Fields that nobody has asked for by the
// time that done is called are unknown.
type object struct {
	*reader
	n       *node
	path    string
	known   []string
	foreign map[string]string // fields that belong elsewhere, and what to say
	missing []missing
	noMap   bool // n was none; that is all there is to say
	// By key: whether somebody has asked for it, and whether it stands for
	// nothing because it is a second one.
	asked, again []bool
}

type missing struct{ name, what string }

// object returns the fields of n. Where n is no map that is reported, and the
// object is empty.
func (r *reader) object(n *node, path string) *object {
	o := &object{reader: r, n: n, path: path}
	if n.kind != mapNode {
		r.fail(n, path, "%s is no map of fields; write field: value", n.shown())
		o.n, o.noMap = &node{pos: n.pos, kind: mapNode}, true
		return o
	}
	o.asked, o.again = make([]bool, len(n.keys)), make([]bool, len(n.keys))
	seen := make(map[string]pos, len(n.keys))
	for i, key := range n.keys {
		if first, twice := seen[key.text]; twice {
			r.fail(key, join(path, key.text), "is written twice, first in line %d; keep one", first.line+r.lines)
			o.asked[i], o.again[i] = true, true
			continue
		}
		seen[key.text] = key.pos
		if at := n.items[i].pos; r.places != nil && key.kind == stringNode {
			r.places[join(path, key.text)] = pos{at.line + r.lines, at.col}
		}
	}
	return o
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (o *object) at(name string) string { return join(o.path, name) }

// field returns the value of a field, or nil if it is not there. A field without
// a value is reported and counts as not there.
func (o *object) field(name string) *node {
	n, _ := o.find(name)
	return n
}

func (o *object) find(name string) (n *node, written bool) {
	if !slices.Contains(o.known, name) {
		o.known = append(o.known, name)
	}
	for i, key := range o.n.keys {
		if key.text != name || o.again[i] || key.kind != stringNode {
			continue
		}
		first := !o.asked[i]
		o.asked[i] = true
		if o.n.items[i].kind == nullNode {
			if !first {
				return nil, true
			}
			o.fail(o.n.items[i], o.at(name), "has no value, which is no zero; write one or leave the field out")
			return nil, true
		}
		return o.n.items[i], true
	}
	return nil, false
}

// require is field for one that must be there; what tells what to write.
func (o *object) require(name, what string) *node {
	n, written := o.find(name)
	if !written {
		o.missing = append(o.missing, missing{name, what})
	}
	return n
}

// done reports the unknown fields and then the missing ones, but not one that an
// unknown field was meant to be.
func (o *object) done() {
	if o.noMap {
		return
	}
	for i, key := range o.n.keys {
		if o.asked[i] {
			continue
		}
		if message, ok := o.foreign[key.text]; ok {
			o.fail(key, o.at(key.text), "%s", message)
			continue
		}
		near := nearest(key.text, o.known)
		if near == "" {
			o.fail(key, o.at(key.text), "unknown field; the fields here are %s", listed(o.known, "and"))
			continue
		}
		o.fail(key, o.at(key.text), "unknown field; did you mean %s?", near)
		o.missing = slices.DeleteFunc(o.missing, func(m missing) bool { return m.name == near })
	}
	for _, m := range o.missing {
		o.fail(o.n, o.at(m.name), "is missing; write %s", m.what)
	}
}

// entries calls each for every entry of a map whose keys people choose.
func (r *reader) entries(n *node, path string, each func(key, value *node, path string)) {
	o := r.object(n, path)
	for i, key := range o.n.keys {
		if o.again[i] {
			continue
		}
		at := join(path, key.text)
		if key.kind != stringNode {
			r.fail(key, at, "%s is no name; write text, in quotes if it looks like a number", key.shown())
			continue
		}
		if o.n.items[i].kind == nullNode {
			r.fail(o.n.items[i], at, "has no value; write one or leave the entry out")
			continue
		}
		each(key, o.n.items[i], at)
	}
}

// elements calls each for every element of a list.
func (r *reader) elements(n *node, path string, each func(value *node, path string)) {
	if n.kind != listNode {
		r.fail(n, path, "%s is no list; write [%s]", n.shown(), n.text)
		return
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if r.places != nil {
			r.places[at] = pos{item.line + r.lines, item.col}
		}
		if item.kind == nullNode {
			r.fail(item, at, "has no value; write one or leave the element out")
			continue
		}
		each(item, at)
	}
}

// shown returns n as a message shows it: no more than fits in a line.
func (n *node) shown() string {
	switch n.kind {
	case listNode:
		return "a list"
	case mapNode:
		return "a map"
	case nullNode:
		return "nothing"
	case boolNode, numberNode:
		return short(n.text)
	case stringNode:
	}
	return strconv.Quote(short(n.text))
}

// short cuts s for a message.
func short(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

// text reads a line of text.
func (r *reader) text(n *node, path string) (string, bool) {
	s, ok := r.paragraph(n, path)
	if ok && strings.ContainsFunc(s, isControl) {
		r.fail(n, path, "holds a control character or a line break; write one line of text")
		return "", false
	}
	return s, ok
}

func isControl(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 }

// paragraph reads text that may have several lines.
func (r *reader) paragraph(n *node, path string) (string, bool) {
	switch n.kind {
	case stringNode:
		return n.text, true
	case numberNode, boolNode:
		r.fail(n, path, "%s is no text here; write %q", short(n.text), short(n.text))
	case listNode, mapNode, nullNode:
		r.fail(n, path, "%s is no text; write text", n.shown())
	}
	return "", false
}

func (o *object) text(name string) string {
	n := o.field(name)
	if n == nil {
		return ""
	}
	s, ok := o.reader.text(n, o.at(name))
	if ok && s == "" {
		o.fail(n, o.at(name), "is empty; write text or leave the field out")
	}
	return s
}

// whole reads a number without sign, point, exponent, quotes or another base.
func (r *reader) whole(n *node, path string, lowest, highest int64) (int64, bool) {
	digits := n.text != "" && strings.Trim(n.text, "0123456789") == ""
	switch {
	case n.kind == listNode, n.kind == mapNode, n.kind == nullNode, n.kind == boolNode:
		r.fail(n, path, "%s is no number; write a whole number", n.shown())
	case n.kind == stringNode && digits && n.quoted:
		r.fail(n, path, "%q is in quotes; write %s without them", short(n.text), short(n.text))
	case n.kind == stringNode:
		r.fail(n, path, "%q is no number; write a whole number in digits", short(n.text))
	case strings.HasPrefix(n.text, "-") && strings.Trim(n.text[1:], "0123456789") == "" && n.text != "-0":
		r.fail(n, path, "%s is below %d", short(n.text), lowest)
	case !digits:
		r.fail(n, path, "%s is no whole number; write digits 0 to 9 alone, without point, sign, exponent or _", short(n.text))
	case len(n.text) > 1 && n.text[0] == '0':
		r.fail(n, path, "%s begins with 0, which some programs read as octal; write %s", short(n.text), short(strings.TrimLeft(n.text[:len(n.text)-1], "0")+n.text[len(n.text)-1:]))
	default:
		v, err := strconv.ParseInt(n.text, 10, 64)
		switch {
		case err != nil || v > highest:
			r.fail(n, path, "%s is above %d, the most that may be written here", short(n.text), highest)
		case v < lowest:
			r.fail(n, path, "%s is below %d", n.text, lowest)
		default:
			return v, true
		}
	}
	return 0, false
}

// amount reads units.
func (r *reader) amount(n *node, path string) (int64, bool) { return r.whole(n, path, 0, MaxAmount) }

// amountOrUnlimited reads units, or the one word for no bound.
func (r *reader) amountOrUnlimited(n *node, path string) (v int64, unlimited, ok bool) {
	switch {
	case n.kind == stringNode && n.text == "unlimited":
		return 0, true, true
	case n.kind == numberNode && n.text == "-1":
		r.fail(n, path, "-1 is below 0; write a number, or unlimited for no bound")
	case n.kind == stringNode && !n.quoted:
		r.fail(n, path, "%q is no number; write a whole number, or unlimited", short(n.text))
	default:
		v, ok = r.amount(n, path)
		return v, false, ok
	}
	return 0, false, false
}

func (o *object) bool(name string, otherwise bool) bool {
	n := o.field(name)
	if n == nil {
		return otherwise
	}
	v, ok := o.reader.bool(n, o.at(name))
	return v || !ok && otherwise
}

func (r *reader) bool(n *node, path string) (v, ok bool) {
	if n.kind == boolNode && (n.text == "true" || n.text == "false") {
		return n.text == "true", true
	}
	r.fail(n, path, "%s is neither true nor false; write one of them", n.shown())
	return false, false
}

// texts reads a list of text that is not empty.
func (o *object) texts(name string) []string {
	var all []string
	n := o.field(name)
	if n == nil {
		return nil
	}
	o.elements(n, o.at(name), func(item *node, path string) {
		s, ok := o.reader.text(item, path)
		switch {
		case ok && s == "":
			o.fail(item, path, "is empty; write text or leave the element out")
		case ok && slices.Contains(all, s):
			o.fail(item, path, "%q is listed twice; keep one", s)
		case ok:
			all = append(all, s)
		}
	})
	if n.kind == listNode && len(n.items) == 0 {
		o.fail(n, o.at(name), "is empty; list at least one or leave the field out")
	}
	return all
}

// An option is a word that a field may hold and what it means.
type option[T any] struct {
	word string
	is   T
}

// choose reads a field that holds one of a few words.
func choose[T any](o *object, name string, otherwise T, options ...option[T]) T {
	n := o.field(name)
	if n == nil {
		return otherwise
	}
	return pick(o.reader, n, o.at(name), otherwise, options...)
}

func pick[T any](r *reader, n *node, path string, otherwise T, options ...option[T]) T {
	words := make([]string, 0, len(options))
	for _, opt := range options {
		if n.kind == stringNode && n.text == opt.word {
			return opt.is
		}
		words = append(words, opt.word)
	}
	r.fail(n, path, "%s is unknown; use %s", n.shown(), listed(words, "or"))
	return otherwise
}

func listed(words []string, and string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + and + " " + words[len(words)-1]
}

// The patterns of Appendix A; the schema has the same.
const (
	namePattern     = `^[a-z][a-z0-9_-]{0,62}$`
	tenantPattern   = `^[a-z]+:[A-Za-z0-9._-]{1,120}$`
	durationPattern = `^([0-9]{1,9}(d|h|m|s|ms)){1,5}$`
	percentPattern  = `^(100(\.0{1,2})?|[0-9]{1,2}(\.[0-9]{1,2})?)%$`
	zonePattern     = `^(UTC|[A-Z][A-Za-z_]+(/[A-Za-z0-9_+-]+){1,2})$`
)

// name reads a name that people choose.
func (r *reader) readName(n *node, path string) (string, bool) {
	s, ok := r.text(n, path)
	if !ok || r.checkName(n, path, s) {
		return s, ok
	}
	return "", false
}

func (o *object) name(name string) string {
	n := o.field(name)
	if n == nil {
		return ""
	}
	s, _ := o.reader.readName(n, o.at(name))
	return s
}

func (r *reader) checkName(n *node, path, s string) bool {
	if isName(s) {
		return true
	}
	r.fail(n, path, "names are a-z, 0-9, _ and -, and start with a letter; write %s", suggestName(s))
	return false
}

func isName(s string) bool {
	if s == "" || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func suggestName(s string) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '_'
	}, s)
	s = strings.TrimLeft(s, "0123456789_-")
	if s = s[:min(len(s), 63)]; s == "" {
		return "a name such as per_second"
	}
	return s
}

// tenant reads the name of a tenant.
func (r *reader) tenant(n *node, path string) (string, bool) {
	s, ok := r.text(n, path)
	if ok && !IsTenant(s) {
		r.fail(n, path, "%q is no tenant; write TYPE:ID, such as org:acme, with a-z before the colon and A-Z, a-z, 0-9, ., _ and - after it", short(s))
		return "", false
	}
	return s, ok
}

// IsTenant tells whether s is spelled as a tenant's name: "org:acme".
func IsTenant(s string) bool {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || kind == "" || id == "" || len(id) > 120 {
		return false
	}
	for i := range len(kind) {
		if kind[i] < 'a' || kind[i] > 'z' {
			return false
		}
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

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
		r.fail(n, path, "%q is no duration; write %s", short(s), suggestDuration(s))
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
		unit := time.Duration(0)
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
		r.fail(n, path, "%q is no percentage; write 0%% to 100%% with at most two digits behind the point, such as 10%% or 12.5%%", short(s))
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
	if regexp.MustCompile(zonePattern).MatchString(s) {
		if zone, err := time.LoadLocation(s); err == nil {
			return zone
		}
	}
	o.fail(n, path, "%q is no known time zone; write UTC or a name such as Europe/Berlin", short(s))
	return nil
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
		o.fail(n, o.at(name), "%q is no address; write %s://example.com/path, in ASCII", short(s), schemes[0])
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
	o.fail(n, o.at(name), "%s is no instant; write one such as 2026-12-31T23:59:59Z", n.shown())
	return time.Time{}
}

// date reads a day as its midnight in zone.
func (o *object) date(n *node, path string, zone *time.Location) (time.Time, bool) {
	if n.kind == stringNode {
		if t, err := time.ParseInLocation(time.DateOnly, n.text, zone); err == nil && t.Year() >= 1970 {
			return t, true
		}
	}
	o.fail(n, path, "%s is no day; write one such as 2026-01-31", n.shown())
	return time.Time{}, false
}

// nearest returns the word that s was probably meant to be, or "".
func nearest(s string, words []string) string {
	best, nearest := 1+min(len(s)/3, 3), ""
	for _, w := range words {
		if d := distance(s, w); d < best || d == best && nearest == "" {
			best, nearest = d, w
		}
	}
	return nearest
}

// distance returns how many letters must be added, removed, changed or swapped
// with their neighbour to turn a into b.
func distance(a, b string) int {
	const far = 1000
	if len(a) > 40 || len(b) > 40 {
		return far
	}
	a, b = strings.ToLower(a), strings.ToLower(b)
	var rows [3][41]int
	for j := range len(b) + 1 {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		rows[2][0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[1][j]+1, rows[2][j-1]+1, rows[1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[0][j-2]+1)
			}
			rows[2][j] = d
		}
		rows[0], rows[1] = rows[1], rows[2]
	}
	return rows[1][len(b)]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
