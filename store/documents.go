package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
)

// Documents watches the documents of a store and says what is in force. Fields
// are set before Run and not changed after.
type Documents struct {
	cluster *Cluster

	Now func() time.Time
	Log zerolog.Logger
	// OnSnapshot is called with each new snapshot, the first one after all
	// documents were read. OnReset is called before the next snapshot when the
	// store is another one than before, or an older state of it: nothing that
	// was leased from it may be spent. Both are called by Run, one at a time.
	OnSnapshot func(*plan.Snapshot)
	OnReset    func()
	// OnApplied is called by Run with the time from the arrival of changes
	// until all of them were decided. It is not called for a full read.
	OnApplied func(time.Duration)
	// OnMinimum is called by Run with the feature level that the store needs, before
	// the first snapshot and whenever it changes.
	OnMinimum func(Minimum)

	// Progress and Silence replace 5 s and 15 s in tests.
	Progress, Silence time.Duration

	watcher watcher

	// Owned by Run.
	shelf    *shelf
	epoch    string
	searches int // of history, in the batch at hand
	readings readings

	mu    sync.Mutex
	snap  *plan.Snapshot // guarded by mu, as all below
	list  []Rejection
	stats DocumentStats
}

// DocumentStats tells how the documents are.
type DocumentStats struct {
	Revision int64             // of etcd, up to which all is applied
	Rejected map[plan.Kind]int // documents whose newest edit is not in force
	Up       bool              // etcd answers
	Contact  time.Time         // when it last did
	// ApplyDelay is how long the last change took from its arrival until it was
	// in force.
	ApplyDelay time.Duration
	Minimum    Minimum // that the store needs; zero before the first complete read
	// Untold are changes of which etcd's watch never told: they were found when everything
	// was read again, every 10 minutes.
	Untold int64
}

// NewDocuments returns the documents of an etcd.
func NewDocuments(cluster *Cluster) *Documents {
	return &Documents{
		cluster: cluster, Log: zerolog.Nop(),
		Now:     time.Now, //nolint:forbidigo // the default of an edge
		watcher: watcher{cluster: cluster, name: "documents", spans: append(documentSpans(), fleetSpans()...)},
	}
}

// Run watches until ctx is done. Etcd being away, at the start too, is waited
// out.
func (d *Documents) Run(ctx context.Context) error {
	d.watcher.log, d.watcher.progress, d.watcher.silence = d.Log, d.Progress, d.Silence
	d.watcher.tick = func() { d.again(ctx) }
	d.watcher.arrived = func(part []change) { d.shelf.early(part, &d.readings) }
	defer d.readings.wait()
	d.start(ctx)
	d.watcher.run(ctx, func(b batch) error { return d.handle(ctx, b) })
	return ctx.Err()
}

func (d *Documents) start(ctx context.Context) {
	d.shelf = newShelf(d.Log)
	d.shelf.fleet = newFleet()
	d.shelf.history = func(id docID, before int64) *plan.Document {
		if d.searches++; d.searches > maxSearches {
			return nil
		}
		search, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		doc, _, _ := lastGood(search, d.cluster, id, before, d.shelf.fleet.fits)
		if search.Err() != nil {
			d.searches = maxSearches // every further one would wait, too
		}
		return doc
	}
}

// Snapshot returns what is in force; nil before the first complete read.
func (d *Documents) Snapshot() *plan.Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.snap
}

// Rejected returns the documents whose newest edit is not in force, sorted.
func (d *Documents) Rejected() []Rejection {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// Stats tells how the documents are now.
func (d *Documents) Stats() DocumentStats {
	up, contact := d.watcher.health()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Rejected = maps.Clone(s.Rejected)
	s.Up, s.Contact = up, contact
	return s
}

// handle takes over one batch: what is valid of it is published, then handed out.
func (d *Documents) handle(ctx context.Context, b batch) error {
	if reset := d.epoch != "" && epochIn(b, d.epoch) != d.epoch; reset || b.reset {
		if !b.full {
			d.epoch = epochIn(b, d.epoch)
			d.reset(ctx)
			return fmt.Errorf("%s has changed: %w", EpochKey, errOtherStore)
		}
		d.reset(ctx)
	}
	d.shelf.now = d.Now()
	d.shelf.apply(b)
	d.tellUntold(ctx, b)
	d.readings.wait()
	d.epoch = d.shelf.epoch
	d.settle(ctx)
	delay := time.Since(b.received) //nolint:forbidigo // measures delay
	d.mu.Lock()
	d.stats.Revision = max(b.revision, d.stats.Revision)
	d.stats.ApplyDelay = delay
	d.mu.Unlock()
	if d.OnApplied != nil && !b.full {
		d.OnApplied(delay)
	}
	d.record(ctx)
	d.recordTariffs(ctx)
	d.ensureEpoch(ctx)
	return nil
}

// ensureEpoch gives the store an epoch if it has none: it is new, or somebody has
// emptied it. The watch tells which one it is.
func (d *Documents) ensureEpoch(ctx context.Context) {
	if d.epoch != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := EnsureEpoch(ctx, d.cluster); err != nil {
		d.Log.Warn().Err(err).Msg("a restored store could not be told from this one; trying again")
	}
}

// reset forgets everything of the store.
func (d *Documents) reset(ctx context.Context) {
	d.Log.Warn().Msg("the store is another one than before, or was restored; reading everything again")
	d.start(ctx)
	d.mu.Lock()
	d.stats.Revision = 0
	d.mu.Unlock()
	if d.OnReset != nil {
		d.OnReset()
	}
}

// epochIn returns the epoch after b; otherwise if b does not tell.
func epochIn(b batch, otherwise string) string {
	for _, c := range b.changes {
		if c.key == EpochKey {
			return string(c.value())
		}
	}
	if b.full {
		return ""
	}
	return otherwise
}

// settle decides, publishes, and hands out a snapshot if there is a new one.
func (d *Documents) settle(ctx context.Context) {
	d.searches = 0
	changed := !d.shelf.handed || d.shelf.held
	d.shelf.halfway, d.shelf.held = false, false
	// Each turn may make other documents valid; a chain of them is short.
	for range maxTurns {
		ds := d.shelf.decide()
		changed = changed || ds.changed
		if err := d.write(ctx, ds); err != nil {
			d.Log.Warn().Err(err).Msg("valid documents could not be published; trying again")
			d.shelf.relevant = false
			break
		}
		if !d.shelf.relevant {
			break
		}
		changed = true
	}
	d.shelf.relevant = false
	changed = d.shelf.catalog.SetCascades(d.shelf.fleet.minimum.cascades()) || changed
	d.tellMinimum()
	list := d.shelf.list()
	var snap *plan.Snapshot
	if d.shelf.held = changed && d.shelf.halfway; changed && !d.shelf.held {
		snap = d.shelf.catalog.Snapshot()
		d.shelf.handed, d.shelf.moved = true, false
	}
	d.mu.Lock()
	d.list = list
	d.stats.Rejected = map[plan.Kind]int{}
	for _, r := range list {
		d.stats.Rejected[r.Kind]++
	}
	if snap != nil {
		d.snap = snap
	}
	d.mu.Unlock()
	if snap != nil && d.OnSnapshot != nil {
		d.OnSnapshot(snap)
	}
}

// tellMinimum passes on what the store needs, if that is news.
func (d *Documents) tellMinimum() {
	m := d.shelf.fleet.minimum
	d.mu.Lock()
	news := d.stats.Minimum == Minimum{} || d.stats.Minimum.Level != m.Level
	d.stats.Minimum = m
	d.mu.Unlock()
	if news && d.OnMinimum != nil {
		d.OnMinimum(m)
	}
}

// write publishes what was decided. After an error it takes back the rest, for the next
// batch: etcd is away, and every further try would wait for it.
func (d *Documents) write(ctx context.Context, ds decided) (err error) {
	for _, c := range ds.publish {
		// Once another replica was first with rate limits, all others of them lose, too.
		behind := c.kind == plan.KindRateLimits && d.shelf.halfway
		if err == nil && !behind {
			err = d.publish(ctx, c)
		}
		if err != nil || behind {
			d.shelf.takeBack(c)
			d.shelf.postpone(c.docID)
		}
	}
	for _, id := range ds.deletions {
		if err == nil {
			err = d.unpublish(ctx, id)
		}
		if err != nil {
			d.shelf.postpone(id)
		}
	}
	return err
}

// postpone notes that etcd did not take an edit.
func (s *shelf) postpone(id docID) {
	s.dirty[id] = nil
	s.halfway = s.halfway || id.kind == plan.KindRateLimits && s.moved
}

// maxTurns bounds how often a batch is decided: plan, app, routes, tenants on
// them, and one to see that nothing is left.
const maxTurns = 5

// again retries what could not be written.
func (d *Documents) again(ctx context.Context) {
	if len(d.shelf.dirty) > 0 {
		d.shelf.now = d.Now()
		d.settle(ctx)
	}
	d.record(ctx)
	d.recordTariffs(ctx)
	d.ensureEpoch(ctx)
}

// list returns what is rejected, and what cannot be read here, sorted.
func (s *shelf) list() []Rejection {
	all := make([]Rejection, 0, len(s.rejected)+len(s.unread))
	for id, r := range s.rejected {
		one := r.Rejection
		one.Problems = append(slices.Clone(one.Problems), s.unread[id].Problems...)
		all = append(all, one)
	}
	for id, r := range s.unread {
		if s.rejected[id] == nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Rejection) int {
		return compareIDs(docID{a.Kind, a.Name}, docID{b.Kind, b.Name})
	})
	return all
}
