package store

import (
	"encoding/json"
	"fmt"
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

// A Rejection is an edit that is not enforced: the last good version is.
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
	for _, p := range r.Problems {
		if !p.Warning {
			s.Problems = append(s.Problems, problemRecord{p.File, p.Line, p.Col, p.Path, p.Message})
		}
	}
	return s
}

func (s statusRecord) rejection(id docID) Rejection {
	r := Rejection{Kind: id.kind, Name: id.name, Revision: s.Revision, Since: s.Since, Deleted: s.Deleted}
	for _, p := range s.Problems {
		r.Problems = append(r.Problems, plan.Problem{
			File: p.File, Line: p.Line, Col: p.Column, Kind: id.kind, Name: id.name, Path: p.Path, Message: p.Message,
		})
	}
	return r
}

// encodeRecord returns a record as indented JSON: people read it.
func encodeRecord(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("store: a record that JSON cannot express: " + err.Error())
	}
	return string(b)
}

func decodeRecord[T any](b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("decode record: %w", err)
	}
	return v, nil
}
