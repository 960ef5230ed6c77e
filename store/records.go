package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
)

// What is stored under effective/ and status/, as JSON that people can read with
// etcdctl. Old processes read them during a rollout, so fields may be added but
// never changed.
type (
	effectiveRecord struct {
		SourceRevision int64  `json:"source_revision"`
		Document       string `json:"document"`
		Level          int    `json:"feature_level,omitempty"` // that reading the document takes, if above 1
	}
	statusRecord struct {
		Problems []problemRecord `json:"problems"`
		Revision int64           `json:"revision"`
		Since    time.Time       `json:"since"`
		Deleted  bool            `json:"deleted,omitempty"`
	}
	problemRecord struct {
		File    string `json:"file,omitempty"`
		Line    int    `json:"line,omitempty"`
		Column  int    `json:"column,omitempty"`
		Path    string `json:"path,omitempty"`
		Message string `json:"message"`
	}
)

// A Rejection is an edit that is not enforced: the last good version is, if there ever was
// one.
type Rejection struct {
	Kind     plan.Kind
	Name     string
	Revision int64 // of the edit
	Deleted  bool  // the edit is a deletion
	Problems []plan.Problem
	Since    time.Time
}

func (r Rejection) record() statusRecord {
	s := statusRecord{Revision: r.Revision, Since: r.Since, Deleted: r.Deleted, Problems: []problemRecord{}}
	more := 0
	for _, p := range r.Problems {
		switch {
		case p.Warning:
		case len(s.Problems) == maxProblems:
			more++
		default:
			s.Problems = append(s.Problems, problemRecord{p.File, p.Line, p.Col, p.Path, p.Message})
		}
	}
	if more > 0 {
		last := &s.Problems[maxProblems-1]
		last.Message += fmt.Sprintf("; and %d more problems, which metectl validate shows", more)
	}
	return s
}

// maxProblems is how many problems of a document are stored: a long one that is wrong
// throughout has more of them than etcd takes.
const maxProblems = 100

func (s statusRecord) rejection(id docID) Rejection {
	r := Rejection{Kind: id.kind, Name: id.name, Revision: s.Revision, Since: s.Since, Deleted: s.Deleted}
	for _, p := range s.Problems {
		r.Problems = append(r.Problems, plan.Problem{
			File: p.File, Line: p.Line, Col: p.Column, Kind: id.kind, Name: id.name, Path: p.Path, Message: p.Message,
		})
	}
	return r
}

// encodeRecord returns a record as indented JSON: people read it. No byte of a text
// takes more than two, so that the longest document fits (plan.MaxRateLimits).
func encodeRecord(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("store: a record that JSON cannot express: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func decodeRecord[T any](b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("decode record: %w", err)
	}
	return v, nil
}
