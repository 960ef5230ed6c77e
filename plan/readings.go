package plan

import "slices"

// Said is what a document says, if it says it.
type Said int

// What a document may say. Unsaid is nothing.
const (
	Unsaid Said = iota
	No
	Yes
)

// Paths tells how the servers of an app read what a path may spell in two ways. What is
// Unsaid they may read in either: the dearer one counts.
type Paths struct {
	SlashesUnescaped Said // an escaped slash separates segments; a backslash may or may not
	ParametersCut    Said // what follows ";" in a segment is not compared
	CaseIgnored      Said
	TrailingSlashCut Said // a slash at the end is not compared
}

// How much work a path may make. A path that has more readings than a person would
// write counts as the dearest of all.
const (
	maxReadings     = 48
	maxReadingBytes = 16 << 10
)

// readings are the paths that one path may mean: what comes of it by the steps that
// servers take, in any order, each taken or not.
type readings struct {
	all   []string
	bytes int
	over  bool // there are more
	dots  bool // a dot segment was resolved
}

// readings returns those of a path without a query that inspect could read.
func (p *Paths) readings(path string) readings {
	r := readings{all: []string{path}, bytes: len(path), over: len(path) > maxReadingBytes}
	for i := 0; i < len(r.all) && !r.over; i++ {
		s := r.all[i]
		r.add(unescape(s, isLetter))
		r.add(unescapePercent(s))
		if p.SlashesUnescaped != No {
			r.add(unescapeSlashes(s))
			r.add(unescapeBackslashes(s))
		}
		if p.ParametersCut != No {
			r.add(cutParameters(s))
		}
		r.add(mergeSlashes(s))
		r.add(cutQuery(s))
		r.add(cutBlanks(s))
		resolved := resolveDots(s)
		r.dots = r.dots || resolved != s
		r.add(resolved)
	}
	if p.SlashesUnescaped == Yes || p.ParametersCut == Yes { // a step that is always taken
		r.all = slices.DeleteFunc(r.all, func(s string) bool {
			return p.SlashesUnescaped == Yes && unescapeSlashes(s) != s || p.ParametersCut == Yes && cutParameters(s) != s
		})
	}
	return r
}

func (r *readings) add(s string) {
	switch {
	case slices.Contains(r.all, s):
	case len(r.all) == maxReadings || r.bytes+len(s) > maxReadingBytes:
		r.over = true
	default:
		r.all = append(r.all, s)
		r.bytes += len(s)
	}
}

// doubtful reports whether a path with these traits is one that no client writes which
// means one thing: it is never exempt. Dot segments, which readings finds, are too.
func (p *Paths) doubtful(found trait) bool {
	return found&escapedDot != 0 ||
		found&escapedSlash != 0 && p.SlashesUnescaped == Unsaid ||
		found&parameter != 0 && p.ParametersCut == Unsaid
}
