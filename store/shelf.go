package store

import (
	"bytes"
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
)

// A docID names a document.
type docID struct {
	kind plan.Kind
	name string
}

// A source is what somebody wants.
type source struct {
	revision int64
	text     []byte // nil for tenants, credentials and webhooks in force: they are many
}

// An effective document is the last good text, from effective/.
type effective struct {
	revision int64 // of the key
	source   int64 // of the document that it was copied from
	text     string
	doc      *plan.Document // published kinds; nil if this version cannot read it
}

// A storedStatus is what is under status/.
type storedStatus struct {
	revision int64 // of the key
	record   statusRecord
}

// A rejected edit. Its document is kept if it can be read, since other documents
// may make it valid.
type rejected struct {
	Rejection
	doc     *plan.Document
	changed bool // its problems are others than those in status/
}

// A shelf holds the documents of a store and decides which are in force. It does
// no I/O of its own and is for one goroutine.
type shelf struct {
	log     zerolog.Logger
	catalog *plan.Catalog
	now     time.Time // of the batch at hand
	// history returns the last valid version before a revision. Nil, and nil
	// answers: there is none.
	history func(id docID, before int64) *plan.Document

	sources   map[docID]source
	deleted   map[docID]int64 // revision of deletions that are not decided
	effective map[docID]effective
	statuses  map[docID]storedStatus
	rejected  map[docID]*rejected

	dirty map[docID]bool // to be decided
	owed  map[docID]bool // status/ or effective/ may need a write
	// relevant: the catalog has changed, so rejections are decided anew.
	relevant bool
	handed   bool // a snapshot was handed out
	epoch    string
	warned   map[string]bool // keys outside of the schema
}

func newShelf(log zerolog.Logger) *shelf {
	return &shelf{
		log: log, catalog: plan.NewCatalog(),
		sources: map[docID]source{}, deleted: map[docID]int64{},
		effective: map[docID]effective{}, statuses: map[docID]storedStatus{}, rejected: map[docID]*rejected{},
		dirty: map[docID]bool{}, owed: map[docID]bool{}, warned: map[string]bool{},
	}
}

// documentSpans are the ranges that hold documents, and what documents depend on.
func documentSpans() []span {
	return []span{
		{Prefix, statePrefix},
		{stateEnd, prefixEnd},
		{versionsPrefix, versionsPrefix[:len(versionsPrefix)-1] + "0"},
	}
}

// apply takes over what changed. It decides nothing yet.
func (s *shelf) apply(b batch) {
	if b.full {
		s.sweep(&b)
	}
	for _, c := range b.changes {
		s.change(c)
	}
}

// sweep adds the deletion of every key that is known and not in a full batch.
func (s *shelf) sweep(b *batch) {
	there := make(map[string]bool, len(b.changes))
	for _, c := range b.changes {
		there[c.key] = true
	}
	drop := func(key string) {
		if !there[key] {
			b.changes = append(b.changes, change{key: key, revision: b.revision})
		}
	}
	for id := range s.sources {
		drop(DocumentKey(id.kind, id.name))
	}
	for id := range s.effective {
		drop(EffectiveKey(id.kind, id.name))
	}
	for id := range s.statuses {
		drop(StatusKey(id.kind, id.name))
	}
}

func (s *shelf) change(c change) {
	if kind, name, ok := ParseDocumentKey(c.key); ok {
		s.changeSource(docID{kind, name}, c)
		return
	}
	if kind, name, ok := parseUnder(EffectivePrefix, c.key); ok {
		s.changeEffective(docID{kind, name}, c)
		return
	}
	if kind, name, ok := parseUnder(StatusPrefix, c.key); ok {
		s.changeStatus(docID{kind, name}, c)
		return
	}
	escaped, isVersion := strings.CutPrefix(c.key, versionsPrefix)
	tenant, canonical := unescape(escaped)
	switch {
	case c.key == EpochKey:
		s.epoch = string(c.value())
	case isVersion && canonical:
		s.catalog.SetVoid(tenant, c.revision)
		s.relevant = true
	case strings.HasPrefix(c.key, Prefix+"ratelimits/"):
	case !s.warned[c.key] && len(s.warned) < maxWarned && !c.deleted():
		s.warned[c.key] = true
		s.log.Warn().Str("key", c.key).Msg("key is no document; ignored")
	}
}

// maxWarned bounds the memory of keys that were warned of.
const maxWarned = 1000

func (s *shelf) changeSource(id docID, c change) {
	old, known := s.sources[id]
	switch {
	case c.deleted() && !known:
		return
	case c.deleted():
		delete(s.sources, id)
		s.deleted[id] = c.revision
	case old.revision == c.revision:
		return
	default:
		text := c.value()
		if text == nil {
			text = []byte{} // an empty value is an edit too
		}
		s.sources[id] = source{c.revision, text}
		delete(s.deleted, id)
	}
	s.dirty[id] = true
}

func (s *shelf) changeEffective(id docID, c change) {
	old, known := s.effective[id]
	if c.revision <= old.revision || c.deleted() && !known {
		return // our own, or older than what a transaction told
	}
	s.dirty[id] = true
	if c.deleted() {
		s.dropEffective(id, c.revision)
		return
	}
	s.setEffective(id, c.revision, c.value())
}

// setEffective takes over what is enforced. Apps, plans and routes are in force
// by that, whoever found them valid.
func (s *shelf) setEffective(id docID, revision int64, value []byte) {
	record, err := decodeRecord[effectiveRecord](value)
	e := effective{revision: revision, source: record.SourceRevision, text: record.Document}
	if err == nil && published(id.kind) {
		var problems []plan.Problem
		if e.doc, problems = plan.DecodeOne(id.kind, id.name, "", []byte(record.Document)); e.doc != nil {
			s.put(e.doc, revision)
		} else {
			s.log.Error().Str("kind", string(id.kind)).Str("name", id.name).Str("problem", first(problems)).
				Msg("what is enforced cannot be read here; going on with the last that could")
			s.catalog.PutBroken(id.kind, id.name, revision, first(problems))
			s.relevant = true
		}
	}
	if err != nil {
		s.log.Error().Err(err).Str("key", EffectiveKey(id.kind, id.name)).Msg("what is enforced is unreadable")
	}
	s.effective[id] = e
}

func (s *shelf) dropEffective(id docID, revision int64) {
	delete(s.effective, id)
	if published(id.kind) {
		s.catalog.Delete(id.kind, id.name, revision)
		s.relevant = true
	}
}

func (s *shelf) changeStatus(id docID, c change) {
	if c.deleted() {
		delete(s.statuses, id)
		return
	}
	if s.statuses[id].revision == c.revision {
		return
	}
	record, err := decodeRecord[statusRecord](c.value())
	if err != nil {
		s.log.Warn().Err(err).Str("key", c.key).Msg("status is unreadable")
	}
	s.statuses[id] = storedStatus{c.revision, record}
	if s.rejected[id] == nil {
		s.owed[id] = true
	}
}

func (s *shelf) put(doc *plan.Document, revision int64) {
	s.catalog.Put(doc, revision)
	s.relevant = true
}

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
	publish   []*candidate // of the published kinds, in force in the catalog already
	deletions []docID      // of the published kinds, not done yet
}

// decide finds out which edits are valid, all of them together, and puts those of
// tenants, credentials and webhooks in force. Valid apps, plans and routes are in
// the catalog too, but have to be published or taken back.
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
		case published(c.kind):
			ds.publish = append(ds.publish, c)
		default:
			s.accept(c.docID)
		}
	}
	ds.deletions = s.decideDeletions(deletions)
	ds.changed, s.relevant = s.relevant, false
	return ds
}

// collect returns what has to be decided: what changed, and when the catalog
// changed what was rejected before.
func (s *shelf) collect() (candidates []*candidate, deletions []docID) {
	var unread []*candidate
	for id := range s.dirty {
		src, there := s.sources[id]
		switch {
		case !there:
			if !published(id.kind) && s.inForce(id) {
				s.fallBack(id, 0, "")
			}
			deletions = append(deletions, id)
		case published(id.kind) && s.effective[id].source == src.revision:
			s.accept(id)
		case src.text != nil:
			unread = append(unread, &candidate{docID: id, revision: src.revision, text: src.text})
		}
	}
	read(unread)
	for _, c := range unread {
		if plan.Refused(c.problems) || c.doc == nil {
			s.reject(Rejection{Kind: c.kind, Name: c.name, Revision: c.revision, Problems: c.problems}, nil)
			s.fallBack(c.docID, c.revision, first(c.problems))
			continue
		}
		c.problems = nil
		candidates = append(candidates, c)
	}
	for id, r := range s.rejected {
		switch {
		case s.dirty[id] || !s.relevant && len(candidates) == 0 && len(deletions) == 0:
		case r.Deleted:
			deletions = append(deletions, id)
		case r.doc != nil:
			candidates = append(candidates, &candidate{docID: id, doc: r.doc, revision: r.Revision, text: s.sources[id].text})
		}
	}
	clear(s.dirty)
	slices.SortFunc(candidates, func(a, b *candidate) int { return compareIDs(a.docID, b.docID) })
	slices.SortFunc(deletions, compareIDs)
	return candidates, deletions
}

func compareIDs(a, b docID) int {
	return cmp.Or(cmp.Compare(slices.Index(Kinds(), a.kind), slices.Index(Kinds(), b.kind)), cmp.Compare(a.name, b.name))
}

// read decodes candidates, on all processors: a hundred thousand tenants are read
// at every start.
func read(cs []*candidate) {
	const chunk = 64
	var wg sync.WaitGroup
	parts := slices.Collect(slices.Chunk(cs, chunk))
	next := make(chan []*candidate, len(parts))
	for _, p := range parts {
		next <- p
	}
	close(next)
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		wg.Go(func() {
			for part := range next {
				for _, c := range part {
					c.doc, c.problems = plan.DecodeOne(c.kind, c.name, "", c.text)
				}
			}
		})
	}
	wg.Wait()
}

// try takes back the candidates that contradict others, until the rest holds
// together. All are in the catalog when it begins, since a plan and the app that
// declares its classes may need each other. Candidates that fell with others are
// tried once more by themselves.
func (s *shelf) try(cs []*candidate) {
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
	}
	for rose := true; rose; {
		rose = false
		for _, c := range cs {
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

// takeBack puts in force again what was before c.
func (s *shelf) takeBack(c *candidate) {
	if c.before != nil && published(c.kind) {
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
	if !published(id.kind) {
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
	s.catalog.PutBroken(id.kind, id.name, revision, strings.ToLower(string(id.kind))+" "+id.name+" "+why)
	s.relevant = true
}

// accept notes that the newest edit of a document is in force.
func (s *shelf) accept(id docID) {
	if s.rejected[id] != nil {
		delete(s.rejected, id)
		s.log.Info().Str("kind", string(id.kind)).Str("name", id.name).Msg("document is not rejected any more")
	}
	_, hasEffective := s.effective[id]
	if _, hasStatus := s.statuses[id]; hasStatus || hasEffective && !published(id.kind) {
		s.owed[id] = true
	}
	if src := s.sources[id]; src.text != nil && !published(id.kind) {
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
	// What another replica, maybe of another version, says of this edit stands,
	// unless it has changed.
	n.changed = !told || again && (old.changed || !slices.Equal(old.Problems, r.Problems))
	s.rejected[id] = n
	s.owed[id] = true
	if again {
		return
	}
	s.log.Warn().Str("kind", string(r.Kind)).Str("name", r.Name).Int64("revision", r.Revision).
		Bool("deletion", r.Deleted).Str("problem", first(r.Problems)).Int("problems", len(r.Problems)).
		Msg("edit is rejected; the last good version stays in force")
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
			if _, there := s.effective[id]; published(id.kind) && there {
				may = append(may, id)
				continue
			}
			s.catalog.Delete(id.kind, id.name, s.deleted[id])
			delete(s.deleted, id)
			s.accept(id)
		}
		open = still
	}
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

// inForce tells whether some version of a document is enforced.
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
