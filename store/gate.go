package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

// MinimumKey holds the feature level that everybody needs who works on this store.
// It rises with the first document that needs a level, in the transaction that puts
// it in force, and falls only by hand.
const MinimumKey = statePrefix + "minimum"

// A Minimum is the feature level that a store needs.
type Minimum struct {
	Level   int    // 1: any; 0: it cannot be read
	Version string // a version of mete that has the level; "": unknown

	revision int64 // of the key; 0: it does not exist
}

// minimumRecord is what is stored. Fields may be added but never changed.
type minimumRecord struct {
	Level   int    `json:"feature_level"`
	Version string `json:"version,omitempty"`
}

// Above reports whether the store needs more than a level. A minimum that cannot be
// read was written by a version that nobody here knows, and is above all.
func (m Minimum) Above(level int) bool { return m.Level > level || m.Level == 0 }

// cascades reports whether limits cascade that do not say it: the level is one from
// which every replica reads them so.
func (m Minimum) cascades() bool { return m.Above(plan.CascadeLevel - 1) }

// Needed names what the store needs, for people: "feature level 3 (version v1.4.0
// has it)".
func (m Minimum) Needed() string {
	s := fmt.Sprintf("feature level %d", m.Level)
	if m.Level == 0 {
		s = "a feature level that cannot be read from " + MinimumKey
	}
	if m.Version != "" {
		s += " (version " + m.Version + " has it)"
	}
	return s
}

func decodeMinimum(value []byte, revision int64) Minimum {
	if revision == 0 {
		return Minimum{Level: 1}
	}
	r, err := decodeRecord[minimumRecord](value)
	if err != nil || r.Level < 1 {
		return Minimum{revision: revision}
	}
	return Minimum{r.Level, r.Version, revision}
}

// ReadMinimum reads what the store needs. The read is linearizable: a replica that
// has registered before it is seen by a replica that raises the minimum after it.
func ReadMinimum(ctx context.Context, kv Doer) (Minimum, error) {
	r, err := get(ctx, kv, MinimumKey)
	if err != nil {
		return Minimum{}, fmt.Errorf("read %s: %w", MinimumKey, err)
	}
	if len(r.Kvs) == 0 {
		return decodeMinimum(nil, 0), nil
	}
	return decodeMinimum(r.Kvs[0].Value, r.Kvs[0].ModRevision), nil
}

// errMinimum: the minimum is another one than was read.
var errMinimum = errors.New(MinimumKey + " has changed meanwhile")

// A TooOldError tells that this build is too old to write documents: it could drop
// what it does not see.
type TooOldError struct{ Minimum Minimum }

// Error implements error.
func (e *TooOldError) Error() string {
	return fmt.Sprintf("this build has feature level %d, the store needs %s", plan.FeatureLevel, e.Minimum.Needed())
}

// Writable returns what the store needs; a [*TooOldError] if that is more than this
// build has.
func Writable(ctx context.Context, kv Doer) (Minimum, error) {
	m, err := ReadMinimum(ctx, kv)
	if err == nil && m.Above(plan.FeatureLevel) {
		err = &TooOldError{m}
	}
	return m, err
}

// A fleet is what is known of the live replicas and of the level that the store
// needs. It is for one goroutine.
type fleet struct {
	replicas map[string]Presence // by incarnation; Feature 0: it cannot be read
	newest   int64               // no replica that registered up to here is missing
	minimum  Minimum
	changed  bool // since what is held back was judged
}

func newFleet() *fleet {
	return &fleet{replicas: map[string]Presence{}, minimum: decodeMinimum(nil, 0)}
}

// fleetSpans are the ranges that hold what a fleet knows.
func fleetSpans() []span {
	return []span{{MinimumKey, MinimumKey + "\x00"}, prefixSpan(ReplicasPrefix)}
}

// apply takes over what a batch tells; all there is, if it is full.
func (f *fleet) apply(b *batch) {
	if b.full {
		*f = *newFleet()
		f.newest, f.changed = b.revision, true
	}
	told := f.newest // changes of a batch are in no order
	for i := range b.changes {
		f.change(&b.changes[i], b.full, told)
	}
}

// change takes over one change. Of replicas, what a batch that is not full says up to
// the revision told is known already.
func (f *fleet) change(c *change, full bool, told int64) {
	if c.key == MinimumKey && (full || c.revision > f.minimum.revision) {
		f.minimum, f.changed = decodeMinimum(c.value(), c.revision), true
		if c.deleted() {
			f.minimum = decodeMinimum(nil, 0)
		}
		return
	}
	escaped, isReplica := strings.CutPrefix(c.key, ReplicasPrefix)
	if !isReplica || !full && c.revision <= told {
		return // a transaction has told already
	}
	f.newest, f.changed = max(f.newest, c.revision), true
	if c.deleted() {
		delete(f.replicas, escaped)
		return
	}
	f.replicas[escaped] = presenceOf(c.value())
}

// isFleetKey reports whether a fleet looks at a key.
func isFleetKey(key string) bool {
	return key == MinimumKey || strings.HasPrefix(key, ReplicasPrefix)
}

// presenceOf reads what a replica tells of itself. Fields that a newer version has
// added are ignored; what cannot be read is a replica all the same.
func presenceOf(value []byte) Presence {
	var p Presence
	if json.Unmarshal(value, &p) != nil {
		return Presence{}
	}
	return p
}

// bars returns why c cannot come into force yet, or nil: a live replica does not
// understand it, or does not say whether it does. Tenants and the like are read by
// every replica for itself, from the document, so what decides about them must not
// change when one restarts: once the store's minimum is at their level, and every
// replica was, they pass.
func (f *fleet) bars(c *candidate) *plan.Problem {
	level, path := c.doc.Needs()
	if f == nil || level <= 1 || !Published(c.kind) && f.fits(c.doc) {
		return nil
	}
	why := f.behind(level)
	if why == "" {
		return nil
	}
	p := c.doc.Problem(path, fmt.Sprintf("needs feature level %d; %s", level, why))
	return &p
}

// fits reports whether the store's minimum is at the level that a document needs, so
// that the document may have been in force already.
func (f *fleet) fits(doc *plan.Document) bool {
	level, _ := doc.Needs()
	return f == nil || level <= 1 || f.minimum.Level >= level
}

// moved reports whether the fleet has changed since judged was called.
func (f *fleet) moved() bool { return f != nil && f.changed }

func (f *fleet) judged() {
	if f != nil {
		f.changed = false
	}
}

// level is the feature level that c needs.
func (c *candidate) level() int {
	level, _ := c.doc.Needs()
	return level
}

// record is what is stored of c under effective/.
func (c *candidate) record() effectiveRecord {
	r := effectiveRecord{SourceRevision: c.revision, Document: string(c.text)}
	if level := c.level(); level > 1 {
		r.Level = level
	}
	return r
}

// behind tells who is below a level, or "". All replicas tell it in the same words.
func (f *fleet) behind(level int) string {
	if f.minimum.Level == 0 {
		return MinimumKey + " cannot be read; write {\"feature_level\": N} there, with the level of the oldest replica"
	}
	var first string
	others := 0
	for _, id := range slices.Sorted(maps.Keys(f.replicas)) {
		switch p := f.replicas[id]; {
		case p.Feature >= level:
		case first != "":
			others++
		case p.Feature < 1:
			first = "replica " + id + " does not say which it has: upgrade or stop it first"
		default:
			first = fmt.Sprintf("replica %s (version %s) has %d: upgrade it first", id, p.Version, p.Feature)
		}
	}
	if others > 0 {
		first += fmt.Sprintf(", and %d more", others)
	}
	return first
}

// guards are what a transaction that puts a document of level in force compares: no
// replica has registered since the fleet was read, and nobody has changed the minimum.
func (f *fleet) guards(level int) []clientv3.Cmp {
	if level <= 1 {
		return nil
	}
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(ReplicasPrefix), "<", f.newest+1).WithPrefix(),
		clientv3.Compare(clientv3.ModRevision(MinimumKey), "=", f.minimum.revision),
	}
}

// raise is what such a transaction writes, nil if the minimum is there already. It
// never lowers it.
func (f *fleet) raise(level int) []clientv3.Op {
	if level <= 1 || f.minimum.Level >= level {
		return nil
	}
	return []clientv3.Op{clientv3.OpPut(MinimumKey, encodeRecord(minimumRecord{level, f.versionOf(level)}))}
}

// versionOf names a version that has a level.
func (f *fleet) versionOf(level int) string {
	for _, id := range slices.Sorted(maps.Keys(f.replicas)) {
		if p := f.replicas[id]; p.Feature >= level && p.Version != "" {
			return p.Version
		}
	}
	return ""
}

// raised notes that the transaction at revision has written what raise said.
func (f *fleet) raised(level int, revision int64) {
	if level > 1 && f.minimum.Level < level {
		f.minimum = Minimum{level, f.versionOf(level), revision}
	}
}

// reads are what a transaction that lost reads first, for renew: the one linearizable
// read that a document above level 1 costs, and only if the watch was behind.
func (f *fleet) reads(level int) []clientv3.Op {
	if level <= 1 {
		return nil
	}
	return []clientv3.Op{clientv3.OpGet(MinimumKey), clientv3.OpGet(ReplicasPrefix, clientv3.WithPrefix())}
}

// renew takes over what reads has read.
func (f *fleet) renew(level int, r *clientv3.TxnResponse) {
	if level <= 1 {
		return
	}
	b := batch{full: true, revision: r.Header.Revision}
	b.add(r.Responses[0].GetResponseRange().GetKvs())
	b.add(r.Responses[1].GetResponseRange().GetKvs())
	f.apply(&b)
}
