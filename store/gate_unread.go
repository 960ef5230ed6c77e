package store

import (
	"fmt"
	"slices"

	"github.com/meteproject/mete/plan"
)

// keepOn goes on with the last version of a document that could be read here, though
// another one is in force elsewhere: a version that is too old drops no limit (S26).
// Grants are guarded by the revision that is in etcd, so the last version takes that
// one; under its own, every grant would be refused and the quota be as if etcd were
// away. Where there never was one, on_unavailable decides; text is what is in force.
func (s *shelf) keepOn(id docID, revision int64, text string, r Rejection) {
	if told, known := s.unread[id]; !known || told.Revision != r.Revision {
		s.log.Error().Str("kind", string(id.kind)).Str("name", id.name).Int64("revision", r.Revision).
			Str("problem", first(r.Problems)).Msg("what is enforced cannot be read here; going on with the last that could")
	}
	r.Since = s.now
	s.unread[id] = r
	if doc, _ := s.catalog.Snapshot().Document(id.kind, id.name); doc != nil {
		s.put(doc, revision)
		return
	}
	s.catalog.PutBroken(id.kind, id.name, revision, id.says(first(r.Problems)), []byte(text))
	s.relevant = true
}

// unreadable tells why what is in force cannot be read here. It is told on this
// replica alone: under status/ stand edits that are not in force.
func unreadable(id docID, record effectiveRecord, problems []plan.Problem, err error) Rejection {
	why := first(problems)
	if err != nil {
		why = err.Error()
	}
	message := fmt.Sprintf("needs a newer version: this one, of feature level %d, cannot read what is enforced (%s)", plan.FeatureLevel, why)
	if record.Level > plan.FeatureLevel {
		message = fmt.Sprintf("needs a newer version: it takes feature level %d, this one has %d; upgrade this replica", record.Level, plan.FeatureLevel)
	}
	return Rejection{
		Kind: id.kind, Name: id.name, Revision: record.SourceRevision,
		Problems: []plan.Problem{{Kind: id.kind, Name: id.name, Message: message}},
	}
}

// doubt notes, of an edit that cannot be read here, that this may be for this version
// being too old for the store. Others judge the edit then.
func (s *shelf) doubt(id docID) {
	if s.fleet == nil || !s.fleet.minimum.Above(plan.FeatureLevel) {
		return
	}
	r := s.rejected[id]
	r.changed = false
	r.Problems = append(slices.Clone(r.Problems), plan.Problem{
		Kind: id.kind, Name: id.name,
		Message: fmt.Sprintf("may need a newer version: the store needs %s, this one has %d", s.fleet.minimum.Needed(), plan.FeatureLevel),
	})
}

// bar holds back what some live replica does not understand. The status says so even
// where such a replica has said before that it cannot read the edit: that is no
// mistake of its author.
func (s *shelf) bar(c *candidate, why plan.Problem) {
	s.reject(Rejection{Kind: c.kind, Name: c.name, Revision: c.revision, Problems: []plan.Problem{why}}, c.doc)
	r := s.rejected[c.docID]
	r.barred = true
	stored := s.statuses[c.docID].record
	r.changed = stored.Revision != c.revision || !slices.Equal(stored.Problems, r.record().Problems)
}
