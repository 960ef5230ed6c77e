package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is something that is wrong with a document.
type Problem struct {
	File      string
	Line, Col int  // from 1; 0: unknown
	Index     int  // of the document in its file, from 0
	Kind      Kind // "" where it could not be read
	Name      string
	Path      string // "spec.limits.monthly.amount"; "" for the whole document
	Message   string // what is wrong; what to write instead
	// Warning: the document may be applied all the same.
	Warning bool
	// Unsupported: what is written is right, but this version does not enforce
	// it, so the document is refused.
	Unsupported bool
}

// String returns "file:line:col: path: message", without the parts that are
// unknown.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		b.WriteByte(':')
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Col)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Refused reports whether any of the problems keeps a document from being applied.
func Refused(problems []Problem) bool {
	for i := range problems {
		if !problems[i].Warning {
			return true
		}
	}
	return false
}

// sortProblems puts problems in the order of the file.
func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}
