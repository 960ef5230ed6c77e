package store

import (
	"bytes"
	"slices"

	"github.com/meteproject/mete/plan"
)

// accept notes that the newest edit of a document is in force.
func (s *shelf) accept(id docID) {
	_, was := s.rejected[id]
	if was {
		delete(s.rejected, id)
	}
	if _, unread := s.unread[id]; was && !unread {
		s.log.Info().Str("kind", string(id.kind)).Str("name", id.name).Msg("document is not rejected any more")
	}
	_, hasEffective := s.effective[id]
	if _, hasStatus := s.statuses[id]; hasStatus || hasEffective && !Published(id.kind) {
		s.owed[id] = true
	}
	if src := s.sources[id]; src.text != nil && !Published(id.kind) {
		s.sources[id] = source{revision: src.revision}
	}
}

// reject notes that the newest edit of a document is not in force, and logs it
// once for each revision.
func (s *shelf) reject(r Rejection, doc *plan.Document) {
	id := docID{r.Kind, r.Name}
	old, stored := s.rejected[id], s.statuses[id].record
	again := old != nil && old.Revision == r.Revision && old.Deleted == r.Deleted
	told := stored.Revision == r.Revision && stored.Deleted == r.Deleted && !stored.Since.IsZero()
	switch {
	case again:
		r.Since = old.Since
	case told:
		r.Since = stored.Since
	default:
		r.Since = s.now
	}
	n := &rejected{Rejection: r, doc: doc}
	// What another replica, maybe of another version, says of this edit stands: one
	// that accepts it removes what was written here, and two that write in turn
	// would never end. Only other problems are worth another word.
	n.changed = !told
	if again {
		n.changed = old.changed || !slices.Equal(old.Problems, r.Problems)
	}
	n.changed = n.changed && (!told || !slices.Equal(stored.Problems, r.record().Problems))
	s.rejected[id] = n
	s.owed[id] = true
	if again {
		return
	}
	s.log.Warn().Str("kind", string(r.Kind)).Str("name", r.Name).Int64("revision", r.Revision).
		Bool("deletion", r.Deleted).Str("problem", first(r.Problems)).Int("problems", len(r.Problems)).
		Msg("edit is rejected; " + s.holds(id))
}

// holds tells what holds in the place of an edit that is rejected.
func (s *shelf) holds(id docID) string {
	if s.inForce(id) {
		return "the last good version stays in force"
	}
	const never = "no version before it was valid, so "
	switch id.kind {
	case plan.KindApp:
		return never + "on_unavailable decides for what comes by its rate limit domain, and nobody else is let on"
	case plan.KindRoutes:
		return never + "requests cost what they cost without it"
	case plan.KindCredential:
		return never + "its key is not known"
	case plan.KindRateLimits:
		return never + "on_unavailable decides for its domain, unless other documents limit that"
	case plan.KindPlan, plan.KindTenant:
		return never + "on_unavailable of the app decides for its tenants"
	case plan.KindWebhook:
	}
	return never + "there is none"
}

// decideDeletions deletes tenants, credentials and webhooks that may be deleted,
// and returns the other kinds' documents that may be.
func (s *shelf) decideDeletions(ids []docID) []docID {
	var may []docID
	open := ids
	for again := true; again; {
		again = false
		var still []docID
		for _, id := range open {
			if plan.Refused(s.catalog.CheckDelete(id.kind, id.name)) && s.inForce(id) {
				still = append(still, id)
				continue
			}
			again = true
			if _, there := s.effective[id]; Published(id.kind) && there {
				may = append(may, id)
				continue
			}
			s.catalog.Delete(id.kind, id.name, s.deleted[id])
			delete(s.deleted, id)
			s.accept(id)
		}
		open = still
	}
	s.alarm(open)
	for _, id := range open {
		s.reject(Rejection{
			Kind: id.kind, Name: id.name, Revision: s.deleted[id], Deleted: true,
			Problems: s.catalog.CheckDelete(id.kind, id.name),
		}, nil)
		if id.kind == plan.KindTenant {
			s.catalog.SetVoid(id.name, s.deleted[id])
		}
	}
	return may
}

// alarm tells loudly, and once, that no plan is left: somebody has emptied the
// folder of plans, hardly on purpose (case C112). Those with tenants on them stay
// in force, by deletions that are rejected.
func (s *shelf) alarm(rejected []docID) {
	plans := 0
	for _, id := range rejected {
		if id.kind == plan.KindPlan {
			plans++
		}
	}
	if plans == 0 {
		return
	}
	emptied := true
	for _, name := range s.catalog.Snapshot().Names(plan.KindPlan) {
		if _, written := s.sources[docID{plan.KindPlan, name}]; written {
			emptied = false
		}
	}
	if emptied && !s.alarmed {
		s.log.Error().Int("plans", plans).Str("prefix", DocumentPrefix(plan.KindPlan)).
			Msg("all plans were deleted; those that tenants are on stay in force: write them again, or move their tenants")
	}
	s.alarmed = emptied
}

// inForce reports whether some version of a document is enforced.
func (s *shelf) inForce(id docID) bool {
	doc, _ := s.catalog.Snapshot().Document(id.kind, id.name)
	_, kept := s.effective[id]
	return doc != nil || kept
}

// first returns the first problem that is no warning.
func first(problems []plan.Problem) string {
	for i := range problems {
		if !problems[i].Warning {
			return problems[i].String()
		}
	}
	return ""
}

// position returns where a field stands in a text, 0 and 0 if it does not.
func position(text []byte, field string) (line, col int) {
	at := bytes.Index(text, []byte(field))
	if at < 0 {
		return 0, 0
	}
	return 1 + bytes.Count(text[:at], []byte("\n")), at - bytes.LastIndexByte(text[:at], '\n')
}
