package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A reader reads the values of one document and collects what is wrong.
type reader struct {
	file     string
	index    int
	kind     Kind
	name     string
	lines    int // before the document
	root     *node
	problems []Problem

	conditions *conditions // of rate limit descriptors; nil: none so far
	regexes    int         // steps of all regular expressions so far
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

// object returns the fields of n. Where n is not a map that is reported, and the
// object is empty.
func (r *reader) object(n *node, path string) *object {
	o := &object{reader: r, n: n, path: path, known: make([]string, 0, 8)}
	if n.kind != mapNode {
		r.fail(n, path, "%s is not a map of fields; write field: value", n.shown())
		o.n, o.noMap = &node{pos: n.pos, kind: mapNode}, true
		return o
	}
	marks := make([]bool, 2*len(n.keys))
	o.asked, o.again = marks[:len(n.keys)], marks[len(n.keys):]
	seen := newSeen(len(n.keys))
	for i, key := range n.keys {
		if first := seen.first(n.keys, i); first < i {
			at, advice := join(path, key.text), ""
			if at == "apiVersion" {
				advice = ", or write --- on a line of its own before a second document"
			}
			r.fail(key, at, "is written twice, first in line %d; keep one%s", n.keys[first].line+r.lines, advice)
			o.asked[i], o.again[i] = true, true
		}
	}
	return o
}

// seen finds keys that are written twice. Most maps have few keys, and need no
// index.
type seen map[string]int

func newSeen(n int) seen {
	const few = 16
	if n <= few {
		return nil
	}
	return make(seen, n)
}

// first returns where the key at i stands first. It is called for one i after the
// other.
func (s seen) first(keys []*node, i int) int {
	if s == nil {
		return slices.IndexFunc(keys, func(k *node) bool { return k.text == keys[i].text })
	}
	if first, twice := s[keys[i].text]; twice {
		return first
	}
	s[keys[i].text] = i
	return i
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
			o.fail(o.n.items[i], o.at(name), "has no value, which is not zero; write one or leave the field out")
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
			r.fail(key, at, "%s is not a name; write text, in quotes if it looks like a number", key.shown())
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
		r.fail(n, path, "%s is not a list; write [%s]", n.shown(), n.text)
		return
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.kind == nullNode {
			r.fail(item, at, "has no value; write one or leave the element out")
			continue
		}
		each(item, at)
	}
}

// some is elements for a list that must not be empty.
func (r *reader) some(n *node, path string, each func(value *node, path string)) {
	if n.kind == listNode && len(n.items) == 0 {
		r.fail(n, path, "is empty; list at least one or leave the field out")
	}
	r.elements(n, path, each)
}

// someEntries is entries for a map that must not be empty.
func (r *reader) someEntries(n *node, path string, each func(key, value *node, path string)) {
	if n.kind == mapNode && len(n.items) == 0 {
		r.fail(n, path, "is empty; write at least one entry or leave the field out")
	}
	r.entries(n, path, each)
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
