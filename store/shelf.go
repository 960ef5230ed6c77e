package store

import (
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
)

// A docID names a document.
type docID struct {
	kind plan.Kind
	name string
}

// says makes a sentence about a document: "plan free has never been valid".
func (id docID) says(predicate string) string {
	subject := strings.ToLower(string(id.kind))
	if id.kind == plan.KindRateLimits {
		subject = "rate limits"
		verb, rest, _ := strings.Cut(predicate, " ")
		if many := map[string]string{"has": "have", "is": "are", "needs": "need"}[verb]; many != "" {
			predicate = many + " " + rest
		}
	}
	return subject + " " + id.name + " " + predicate
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
	barred  bool // some live replica does not understand it
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
	// fleet is who must understand a document before it is in force; nil: nobody asks.
	fleet *fleet

	sources   map[docID]source
	deleted   map[docID]int64 // revision of deletions that are not decided
	effective map[docID]effective
	statuses  map[docID]storedStatus
	rejected  map[docID]*rejected
	unread    map[docID]Rejection // in force elsewhere; this version cannot read it

	dirty map[docID]*candidate // to be decided; nil: not read yet
	owed  map[docID]bool       // status/ or effective/ may need a write
	// relevant: the catalog has changed, so rejections are decided again.
	relevant bool
	handed   bool // a snapshot was handed out
	// siblings is the revision up to which all that is in force of rate limits is known.
	siblings int64
	// halfway: only some edits of rate limits are known to be in force. Another replica, whose
	// word is on its way here, puts the others in force, or etcd did not take them. Rules that
	// moved from one document to another, or to another name, would be in none.
	halfway bool
	held    bool // a snapshot waits for that
	moved   bool // what is in force of rate limits has changed since a snapshot was handed out
	epoch   string
	before  int64 // of the full batch at hand: what is older should be known
	// untold are the keys of a full batch at hand that changed, or may have been deleted,
	// without a word from the watch.
	untold, vanished []string
	warned           map[string]bool // keys outside of the schema
	alarmed          bool            // that no plan is left was told
}

func newShelf(log zerolog.Logger) *shelf {
	return &shelf{
		log: log, catalog: plan.NewCatalog(),
		sources: map[docID]source{}, deleted: map[docID]int64{},
		effective: map[docID]effective{}, statuses: map[docID]storedStatus{}, rejected: map[docID]*rejected{},
		unread: map[docID]Rejection{}, dirty: map[docID]*candidate{}, owed: map[docID]bool{}, warned: map[string]bool{},
	}
}

// documentSpans are the ranges that hold documents, and what documents depend on.
func documentSpans() []span {
	return []span{
		{Prefix, statePrefix},
		{stateEnd, prefixEnd},
		{versionsPrefix, versionsPrefix[:len(versionsPrefix)-1] + "0"},
		prefixSpan(LaterPrefix),
		prefixSpan(TariffsPrefix),
	}
}

// apply takes over what changed. It decides nothing yet.
func (s *shelf) apply(b batch) {
	s.before, s.untold, s.vanished = 0, nil, nil
	if b.full {
		if s.handed {
			s.before = b.before
		}
		s.sweep(&b)
		s.siblings = b.revision
		s.catalog.ForgetStoredTariffs()
	}
	if s.fleet != nil {
		s.fleet.apply(&b)
	}
	for _, c := range b.changes {
		s.change(c)
	}
	s.moved = s.moved && s.handed // at start, what is in force is all there is to go by
}

// sweep adds the deletion of every key that is known and not in a full batch.
func (s *shelf) sweep(b *batch) {
	if len(s.sources)+len(s.effective)+len(s.statuses) == 0 {
		return
	}
	there := make(map[string]bool, len(b.changes))
	for _, c := range b.changes {
		there[c.key] = true
	}
	drop := func(key string) {
		if !there[key] {
			s.vanished = append(s.vanished, key)
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
	if strings.HasPrefix(c.key, limitsInForce()) {
		s.siblings = max(s.siblings, c.revision) // changes of one range come in their order
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
	if path, ok := ruleOf(c.key); ok {
		s.catalog.SetSettledLater(path)
		s.relevant = true
		return
	}
	if id, ok := strings.CutPrefix(c.key, TariffsPrefix); ok {
		s.relevant = s.catalog.SetTariff(plan.StoredTariff{ID: id, Text: c.value(), Revision: c.revision}) || s.relevant
		return
	}
	switch {
	case c.key == EpochKey:
		s.epoch = string(c.value())
	case isVersion && canonical:
		s.catalog.SetVoid(tenant, c.revision)
		s.relevant = true
	case isFleetKey(c.key):
	case !s.warned[c.key] && len(s.warned) < maxWarned && !c.deleted():
		s.warned[c.key] = true
		s.log.Warn().Str("key", c.key).Msg("key is not a document; ignored")
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
		s.notice(c)
		text := c.value()
		if text == nil {
			text = []byte{} // an empty value is an edit too
		}
		s.sources[id] = source{c.revision, text}
		delete(s.deleted, id)
	}
	s.dirty[id] = c.early
}

func (s *shelf) changeEffective(id docID, c change) {
	old, known := s.effective[id]
	if c.revision <= old.revision || c.deleted() && !known {
		return // our own, or older than what a transaction told
	}
	s.dirty[id] = nil
	if c.deleted() {
		s.dropEffective(id, c.revision)
		return
	}
	s.notice(c)
	s.setEffective(id, c.revision, c.value())
}

// notice notes a change of which the watch should have told.
func (s *shelf) notice(c change) {
	if c.revision <= s.before {
		s.untold = append(s.untold, c.key)
	}
}

// setEffective takes over what is enforced. Documents of the published kinds are in
// force by that, no matter which replica found them valid.
func (s *shelf) setEffective(id docID, revision int64, value []byte) {
	s.moved = s.moved || id.kind == plan.KindRateLimits
	record, err := decodeRecord[effectiveRecord](value)
	e := effective{revision: revision, source: record.SourceRevision, text: record.Document}
	switch {
	case Published(id.kind):
		var problems []plan.Problem
		if e.doc, problems = plan.DecodeOne(id.kind, id.name, "", []byte(record.Document)); e.doc != nil {
			s.put(e.doc, revision)
			delete(s.unread, id)
			break
		}
		s.keepOn(id, revision, record.Document, unreadable(id, record, problems, err))
	case err != nil:
		s.log.Error().Err(err).Str("key", EffectiveKey(id.kind, id.name)).Msg("what is enforced is unreadable")
	}
	s.effective[id] = e
}

func (s *shelf) dropEffective(id docID, revision int64) {
	delete(s.effective, id)
	delete(s.unread, id)
	s.moved = s.moved || id.kind == plan.KindRateLimits
	if Published(id.kind) {
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
