package plan

import (
	"slices"
	"strconv"
	"strings"
)

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
		r.fail(n, path, "%s is not text here; write %q", short(n.text), short(n.text))
	case listNode, mapNode, nullNode:
		r.fail(n, path, "%s is not text; write text", n.shown())
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
	return r.wholeNumber(n, path, lowest, highest, "without point, sign, exponent or _")
}

// wholeNumber is whole with what a number is written without.
func (r *reader) wholeNumber(n *node, path string, lowest, highest int64, without string) (int64, bool) {
	digits := n.text != "" && strings.Trim(n.text, "0123456789") == ""
	switch {
	case n.kind == listNode, n.kind == mapNode, n.kind == nullNode, n.kind == boolNode:
		r.fail(n, path, "%s is not a number; write a whole number", n.shown())
	case n.kind == stringNode && digits && n.quoted:
		r.fail(n, path, "%q is in quotes; write %s without them", short(n.text), short(n.text))
	case n.kind == stringNode:
		r.fail(n, path, "%q is not a number; write a whole number in digits", short(n.text))
	case strings.HasPrefix(n.text, "-") && strings.Trim(n.text[1:], "0123456789") == "" && n.text != "-0":
		r.fail(n, path, "%s is below %d", short(n.text), lowest)
	case !digits:
		r.fail(n, path, "%s is not a whole number; write digits 0 to 9 alone, %s", short(n.text), without)
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
		r.fail(n, path, "%q is not a number; write a whole number, or unlimited", short(n.text))
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
