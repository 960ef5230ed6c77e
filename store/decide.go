package store

import (
	"cmp"
	"slices"

	"github.com/meteproject/mete/plan"
)

// A candidate is an edit that can be read.
type candidate struct {
	docID
	doc      *plan.Document
	revision int64
	text     []byte

	before         *plan.Document // in force until now; nil: none
	beforeRevision int64
	problems       []plan.Problem // why it cannot be in force
}

// decided is what decide found, for the caller to write down.
type decided struct {
	changed   bool         // the catalog may hold something else than before
	publish   []*candidate // in force in the catalog already: of the published kinds, and of others what raises the minimum
	deletions []docID      // of the published kinds, not done yet
}

// decide finds out which edits are valid, all of them together, and puts those of
// tenants, credentials and webhooks in force. Valid documents of the published kinds
// are in the catalog too, but have to be published or taken back.
func (s *shelf) decide() decided {
	var ds decided
	before := s.catalog.Snapshot()
	candidates, deletions := s.collect()
	for _, c := range candidates {
		c.before, c.beforeRevision = before.Document(c.kind, c.name)
		s.put(c.doc, c.revision)
	}
	s.try(candidates)
	for _, c := range candidates {
		switch {
		case c.problems != nil:
			s.reject(Rejection{Kind: c.kind, Name: c.name, Revision: c.revision, Problems: c.problems}, c.doc)
		case Published(c.kind) || !s.fleet.fits(c.doc):
			ds.publish = append(ds.publish, c)
		default:
			s.accept(c.docID)
		}
	}
	sortCandidates(ds.publish)
	ds.deletions = s.decideDeletions(deletions)
	ds.changed, s.relevant = s.relevant, false
	return ds
}

// collect returns what has to be decided: what changed, and when the catalog
// changed what was rejected before.
func (s *shelf) collect() (candidates []*candidate, deletions []docID) {
	var read, unread []*candidate
	for id, early := range s.dirty {
		src, there := s.sources[id]
		switch {
		case !there:
			if !Published(id.kind) && s.inForce(id) {
				s.fallBack(id, 0, "")
			}
			deletions = append(deletions, id)
		case Published(id.kind) && s.effective[id].source == src.revision:
			s.accept(id)
		case early != nil:
			read = append(read, early)
		case src.text != nil:
			unread = append(unread, &candidate{docID: id, revision: src.revision, text: src.text})
		}
	}
	readAll(unread)
	for _, c := range append(read, unread...) {
		if plan.Refused(c.problems) || c.doc == nil {
			s.fallBack(c.docID, c.revision, first(c.problems))
			s.reject(Rejection{Kind: c.kind, Name: c.name, Revision: c.revision, Problems: c.problems}, nil)
			s.doubt(c.docID)
			continue
		}
		c.problems = nil
		if why := s.fleet.bars(c); why != nil {
			s.fallBack(c.docID, c.revision, first([]plan.Problem{*why}))
			s.bar(c, *why)
			continue
		}
		candidates = append(candidates, c)
	}
	again, more := s.collectRejected(s.relevant || len(candidates)+len(deletions) > 0)
	candidates, deletions = append(candidates, again...), append(deletions, more...)
	clear(s.dirty)
	s.fleet.judged()
	slices.SortFunc(deletions, compareIDs)
	return candidates, deletions
}

// collectRejected returns what was rejected before and has to be decided again: all
// of it if something else changed, and what the fleet held back if that changed.
func (s *shelf) collectRejected(all bool) (candidates []*candidate, deletions []docID) {
	for id, r := range s.rejected {
		_, isDirty := s.dirty[id]
		again := all || r.barred && s.fleet.moved()
		switch {
		case isDirty || !again:
		case r.Deleted:
			deletions = append(deletions, id)
		case r.doc != nil:
			c := &candidate{docID: id, doc: r.doc, revision: r.Revision, text: s.sources[id].text}
			if why := s.fleet.bars(c); why != nil {
				s.bar(c, *why)
				continue
			}
			candidates = append(candidates, c)
		}
	}
	return candidates, deletions
}

// try takes back the candidates that contradict others, until the rest holds
// together. All are in the catalog when it begins, since a plan and the app that
// declares its classes may need each other. Candidates that fell with others are
// tried once more by themselves.
func (s *shelf) try(cs []*candidate) {
	var fallen []*candidate
	for fell := true; fell; {
		fell = false
		var wrong []*candidate
		for _, c := range cs {
			if c.problems != nil {
				continue
			}
			if problems := s.catalog.Check(c.doc); plan.Refused(problems) {
				c.problems = problems
				wrong = append(wrong, c)
			}
		}
		for _, c := range wrong {
			s.takeBack(c)
			fell = true
		}
		fallen = append(fallen, wrong...)
	}
	sortCandidates(fallen)
	for rose := true; rose; {
		rose = false
		for _, c := range fallen {
			if c.problems == nil {
				continue
			}
			problems := s.catalog.Check(c.doc)
			if plan.Refused(problems) {
				c.problems = problems
				continue
			}
			s.put(c.doc, c.revision)
			c.problems, rose = nil, true
		}
	}
}

// sortCandidates puts candidates in the order in which documents depend on each
// other, so that all replicas decide alike. There are too many to sort all.
func sortCandidates(cs []*candidate) {
	slices.SortFunc(cs, func(a, b *candidate) int { return compareIDs(a.docID, b.docID) })
}

func compareIDs(a, b docID) int {
	return cmp.Or(cmp.Compare(slices.Index(Kinds(), a.kind), slices.Index(Kinds(), b.kind)), cmp.Compare(a.name, b.name))
}

// takeBack puts in force again what was before c.
func (s *shelf) takeBack(c *candidate) {
	if c.before != nil && Published(c.kind) {
		s.put(c.before, c.beforeRevision)
		return
	}
	if c.before == nil {
		s.catalog.Delete(c.kind, c.name, 0)
	} else {
		s.put(c.before, c.beforeRevision)
	}
	s.fallBack(c.docID, c.revision, first(c.problems))
}

// fallBack keeps, or finds, the last good version of a document whose edit at
// revision is rejected. That version is in force under the revision of the edit
// (0: of a deletion), since that is what guards find in etcd.
func (s *shelf) fallBack(id docID, revision int64, why string) {
	if !Published(id.kind) {
		doc, _ := s.catalog.Snapshot().Document(id.kind, id.name)
		if doc == nil {
			doc, _ = plan.DecodeOne(id.kind, id.name, "", []byte(s.effective[id].text))
		}
		if doc == nil && s.history != nil {
			doc = s.history(id, cmp.Or(revision, s.deleted[id]))
		}
		if doc != nil {
			s.put(doc, revision)
			return
		}
	}
	if why == "" {
		why = "is not published yet"
	} else {
		why = "has never been valid: " + why
	}
	s.catalog.PutBroken(id.kind, id.name, revision, id.says(why), s.sources[id].text)
	s.relevant = true
}
