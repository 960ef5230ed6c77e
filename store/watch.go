package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
)

// A change is the newest state of a key.
type change struct {
	key      string
	kv       *mvccpb.KeyValue // nil: deleted
	revision int64            // of the put or the deletion
	early    *candidate       // it is being read already; nil: it is not
}

func (c change) deleted() bool { return c.kv == nil }
func (c change) value() []byte { return c.kv.GetValue() }

// A batch is one or more whole responses: never a part of a transaction.
type batch struct {
	full     bool // all keys there are: what is not in it does not exist
	reset    bool // this is another store than before, or an older state of it
	revision int64
	// before is, of a full batch, the revision up to which the watches have told
	// everything before it was read, as they say; 0: nobody knows.
	before   int64
	changes  []change  // at most one for each key
	received time.Time // of the oldest of them
}

// add adds keys to a full batch.
func (b *batch) add(kvs []*mvccpb.KeyValue) {
	b.changes = slices.Grow(b.changes, len(kvs))
	for _, kv := range kvs {
		b.changes = append(b.changes, change{key: string(kv.Key), kv: kv, revision: kv.ModRevision})
	}
}

// Settings of a watcher. Requesting progress keeps the revision at which a quiet
// watch would resume from being compacted, and proves the whole way. A watch that has
// said nothing for silenceLimit is in doubt, no more: see doubt.
const (
	progressEvery = 5 * time.Second
	silenceLimit  = 15 * time.Second
	relistEvery   = 10 * time.Minute
)

// maxHold bounds how long changes of one range wait for news of the others. A
// member that is well says within a millisecond that there are none. It says
// nothing while one of the watches has history to catch up with, which it sees to
// ten times a second, so it is asked again every askEvery.
const (
	maxHold  = 300 * time.Millisecond
	askEvery = 10 * time.Millisecond
)

// A watcher keeps a copy of some ranges of keys true: it reads them at one
// revision, watches from the next one on, and reads again whenever it may have
// missed something: then on another endpoint if that one was silent.
type watcher struct {
	cluster *Cluster
	log     zerolog.Logger
	name    string // of what is watched; also keeps its stream apart from others
	spans   []span
	tick    func() // called now and then between batches; may be nil
	// arrived is called with each part of a full batch before the next is there;
	// may be nil.
	arrived func([]change)

	// Zero: the constants above.
	progress, silence, relist time.Duration

	// Owned by run.
	last      header
	told      int64           // revision up to which the last watches have told everything
	on        *endpoint       // that the watches are open on
	suspected <-chan struct{} // closed when on has been silent since

	mu      sync.Mutex
	contact time.Time // guarded by mu: when etcd last said something
	up      bool      // guarded by mu
}

// run calls handle with a full batch, then with what changes, and with a full one
// again when need be or when handle returns an error, until ctx is done. Batches
// coalesce while handle runs.
func (w *watcher) run(ctx context.Context, handle func(batch) error) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now() //nolint:forbidigo // how long a connection lasted decides nothing that is stored
		err := w.round(ctx, handle)
		if ctx.Err() != nil {
			return
		}
		w.setUp(err == nil, err)
		if time.Since(began) > silenceLimit { //nolint:forbidigo // as above
			pause = firstPause
		}
		if err != nil && wait(ctx, jitter(pause)) != nil {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// round reads everything and follows it; nil means that it is time to do so
// again.
func (w *watcher) round(ctx context.Context, handle func(batch) error) error {
	b := batch{full: true, received: time.Now()} //nolint:forbidigo // measures delay
	var h header
	for _, s := range w.spans {
		var err error
		h, err = scanPages(ctx, w.cluster, s, h.revision, func(kvs []*mvccpb.KeyValue) {
			from := len(b.changes)
			b.add(kvs)
			if w.arrived != nil {
				w.arrived(b.changes[from:])
			}
		})
		if err != nil {
			return err
		}
	}
	b.revision = h.revision
	b.reset = w.last.cluster != 0 && (h.cluster != w.last.cluster || h.revision < w.last.revision)
	if !b.reset {
		b.before = w.told
	}
	w.last, w.told = h, h.revision
	w.setUp(true, nil)
	q := newQueue(h, len(w.spans))
	defer func() { w.last.revision, w.told = max(w.last.revision, q.newest().revision), q.told() }()
	// Watching begins before the first batch is handled, which may take long.
	ctx, cancel := context.WithCancel(w.streamContext(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	watch, closeWatch := w.open()
	defer closeWatch()
	for i, s := range w.spans {
		wg.Go(func() { w.receive(ctx, watch, i, s, q) })
	}
	wg.Go(func() { w.guard(ctx, q) })
	if err := handle(b); err != nil {
		return err
	}
	err := w.follow(ctx, watch, q, handle)
	w.blame(ctx, err)
	return err
}

// open chooses an endpoint and returns a client side watcher of our own, if there is
// a connection to open one on: slow consumers share nothing then. In process, the
// stream's context keeps it apart.
func (w *watcher) open() (clientv3.Watcher, func()) {
	w.on = w.cluster.choose()
	w.suspected = w.cluster.suspected(w.on) // the first batch may take long to handle
	if w.on.client.ActiveConnection() == nil {
		return w.on.client.Watcher, func() {}
	}
	own := clientv3.NewWatcher(w.on.client)
	return own, func() { _ = own.Close() }
}

// errLost: the connection broke.
var errLost = fmt.Errorf("the connection broke: %w", errSilent)

// guard fails q when the connection to the endpoint breaks, if there is another one:
// the client would go on trying this one, without a word.
func (w *watcher) guard(ctx context.Context, q *queue) {
	conn := w.on.client.ActiveConnection()
	if conn == nil || w.cluster.single() {
		return
	}
	for s := conn.GetState(); conn.WaitForStateChange(ctx, s); s = conn.GetState() {
		if s == connectivity.Ready {
			q.fail(errLost)
			return
		}
	}
}

// blame notes why watches have ended, unless ctx has ended them.
func (w *watcher) blame(ctx context.Context, err error) {
	if ctx.Err() == nil && isSilence(err) {
		w.cluster.fault(w.on, err)
	}
}

// streamContext gives the watch its own stream. A member without a leader must
// end it rather than stay silent.
func (w *watcher) streamContext(ctx context.Context) context.Context {
	return clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, "mete-watch", w.name))
}

// receive only hands over: the client buffers without bound, and the server gives
// up on watchers that are slow.
func (w *watcher) receive(ctx context.Context, watch clientv3.Watcher, i int, s span, q *queue) {
	ch := watch.Watch(ctx, s.from, clientv3.WithRange(s.to), clientv3.WithRev(q.start.revision+1), clientv3.WithFragment())
	for r := range ch {
		if err := q.take(i, &r); err != nil {
			q.fail(fmt.Errorf("watch %s: %w", s.from, err))
			return
		}
		w.touch()
	}
	q.fail(fmt.Errorf("watch %s: %w", s.from, errSilent))
}

// follow hands batches to handle until something is wrong or it is time to read
// everything again.
func (w *watcher) follow(ctx context.Context, watch clientv3.Watcher, q *queue, handle func(batch) error) error {
	progress := time.NewTicker(or(w.progress, progressEvery))
	defer progress.Stop()
	silence := or(w.silence, silenceLimit)
	end := time.NewTimer(or(w.relist, relistEvery))
	defer end.Stop()
	late := time.NewTimer(maxHold)
	defer late.Stop()
	suspected, doubt := w.suspected, newDoubt(w.on, q)
	defer doubt.wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-progress.C:
			if w.tick != nil {
				w.tick()
			}
			if q.silentFor(silence) {
				doubt.begin(ctx)
			}
			err = ask(ctx, watch, maxHold)
		case <-suspected:
			suspected = nil
			doubt.begin(ctx)
			err = ask(ctx, watch, maxHold)
		case p := <-doubt.answers:
			if err = doubt.answer(p); err == nil && doubt.open {
				err = ask(ctx, watch, maxHold)
			}
			suspected = w.cluster.suspected(w.on)
		case <-doubt.verdict:
			err = doubt.judge()
		case <-late.C:
			q.poke()
		case <-q.wake:
			err = w.pass(ctx, watch, q, late, handle)
		}
		if err != nil {
			return err
		}
	}
}

// pass hands what has arrived to handle, if it is complete or has waited for long
// enough.
func (w *watcher) pass(ctx context.Context, watch clientv3.Watcher, q *queue, late *time.Timer, handle func(batch) error) error {
	if again, rest := q.incomplete(maxHold); rest > 0 {
		late.Reset(min(rest, askEvery))
		if !again {
			return nil
		}
		return ask(ctx, watch, rest)
	}
	b, err := q.drain()
	if len(b.changes) > 0 {
		w.last.revision = max(w.last.revision, b.revision)
		if err := handle(b); err != nil {
			return err
		}
	}
	return err
}

// ask asks for word of how far the watches are. The answer comes through them. A
// stream that is being opened again takes no question; nothing that has arrived waits
// for it longer than limit.
func ask(ctx context.Context, watch clientv3.Watcher, limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := watch.RequestProgress(bounded)
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("request progress: %w", err)
	}
	return nil
}

func (w *watcher) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.contact = time.Now() //nolint:forbidigo // shown, not decided on
}

// setUp notes whether etcd answers, and logs when that changes.
func (w *watcher) setUp(up bool, err error) {
	w.mu.Lock()
	was, since := w.up, w.contact
	w.up = up
	if up {
		w.contact = time.Now() //nolint:forbidigo // shown, not decided on
	}
	w.mu.Unlock()
	switch {
	case up && !was && !since.IsZero():
		w.log.Info().Str("watch", w.name).Msg("etcd answers again")
	case !up && (was || since.IsZero()):
		w.mu.Lock()
		if since.IsZero() {
			w.contact = time.Unix(0, 1) // logged
		}
		w.mu.Unlock()
		w.log.Warn().Err(err).Str("watch", w.name).Msg("reading everything from etcd again")
	}
}

// health reports whether etcd answers and when it last did.
func (w *watcher) health() (up bool, contact time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up, w.contact
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
