package plan

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// optional is field for one that may be written without a value, which is as good as
// leaving it out: programs that fill in templates write so.
func (o *object) optional(name string) *node {
	i := slices.IndexFunc(o.n.keys, func(k *node) bool { return k.text == name && k.kind == stringNode })
	if i >= 0 && !o.again[i] && o.n.items[i].kind == nullNode {
		o.known, o.asked[i] = append(o.known, name), true
		return nil
	}
	return o.field(name)
}

// plainText reads text as envoyproxy/ratelimit does, which takes a whole number and a
// boolean without quotes as they are written.
func (r *reader) plainText(n *node, path string) (string, bool) {
	switch n.kind {
	case boolNode, stringNode:
		return n.text, true
	case numberNode:
		if isInteger(n.text) {
			return n.text, true
		}
		r.fail(n, path, "%s is a number that programs spell in several ways; write %q", short(n.text), short(n.text))
	case nullNode, listNode, mapNode:
		r.fail(n, path, "%s is not text; write text", n.shown())
	}
	return "", false
}

func isInteger(s string) bool {
	_, err := strconv.ParseInt(s, 0, 64)
	return err == nil || strings.Trim(s, "0123456789") == "" // 0800 is no octal number
}

// word is plainText for what must not be empty.
func (o *object) word(n *node, name string) string {
	s, ok := o.plainText(n, o.at(name))
	if ok && s == "" {
		o.fail(n, o.at(name), "is empty; write the %s", name)
	}
	return s
}

// flag reads true or false in all spellings of YAML 1.1, as envoyproxy/ratelimit does;
// false if it is not written, or without a value.
func (o *object) flag(name string) bool {
	n := o.optional(name)
	if n == nil {
		return false
	}
	if !n.quoted {
		switch n.text {
		case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y":
			return true
		case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N":
			return false
		}
	}
	v, _ := o.reader.bool(n, o.at(name))
	return v
}

// count32 reads a whole number, which may be divided by "_".
func (r *reader) count32(n *node, path string, lowest, highest int64) (int64, bool) {
	if n.kind == numberNode && strings.Trim(n.text, "0123456789_") == "" {
		plain := *n
		plain.text = strings.ReplaceAll(n.text, "_", "")
		n = &plain
	}
	return r.wholeNumber(n, path, lowest, highest, "without point, sign or exponent")
}

// anyMap reads a map of whatever JSON can say.
func (r *reader) anyMap(n *node, path string) map[string]any {
	o := r.object(n, path)
	all := make(map[string]any, len(o.n.keys))
	for i, key := range o.n.keys {
		at := join(path, key.text)
		if key.kind == listNode || key.kind == mapNode {
			r.fail(key, at, "%s is not a name; write text", key.shown())
			continue
		}
		all[key.text] = r.anything(o.n.items[i], at)
	}
	return all
}

func (r *reader) anything(n *node, path string) any {
	switch n.kind {
	case nullNode:
		return nil
	case boolNode:
		return strings.EqualFold(n.text, "true")
	case stringNode:
		return n.text
	case numberNode:
		v, err := strconv.ParseFloat(n.text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			r.fail(n, path, "%s is not a number that JSON can say; write %q for a text", short(n.text), short(n.text))
		}
		return v
	case listNode:
		all := make([]any, 0, len(n.items))
		for i, item := range n.items {
			all = append(all, r.anything(item, path+"["+strconv.Itoa(i)+"]"))
		}
		return all
	case mapNode:
	}
	return r.anyMap(n, path)
}
