package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// readTogether is how many accounts one request reads before they are watched.
const readTogether = 64

// A followRound is one stream of watches on one endpoint, a watch for each account
// that is followed.
type followRound struct {
	board  *Board
	source *watcher
	watch  clientv3.Watcher
	broken *queue // fails when a watch ends that should not, or the connection breaks
	open   sync.WaitGroup
}

// watchAccounts follows what is to be followed until ctx is done. Whenever a watch may
// have missed something, all are read and watched again: they have one stream.
func (b *Board) watchAccounts(ctx context.Context) {
	source := &watcher{cluster: b.cluster, log: b.Log, name: "accounts"}
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now() //nolint:forbidigo // how long a connection lasted decides nothing that is stored
		err := b.followRound(ctx, source)
		if ctx.Err() != nil {
			return
		}
		source.setUp(false, err)
		if time.Since(began) > silenceLimit { //nolint:forbidigo // as above
			pause = firstPause
		}
		if wait(ctx, jitter(pause)) != nil {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// followRound goes through one round, until something is wrong or ctx is done.
func (b *Board) followRound(ctx context.Context, source *watcher) error {
	r := followRound{board: b, source: source, broken: newQueue(header{}, 0)}
	round, cancel := context.WithCancel(source.streamContext(ctx))
	defer r.open.Wait()
	defer cancel()
	watch, closeWatch := source.open()
	defer closeWatch()
	r.watch = watch
	r.open.Go(func() { source.guard(round, r.broken) })
	b.allDue()
	err := r.run(round)
	source.blame(round, err)
	return err
}

// run begins the watches that are due and makes sure that those that are open speak.
func (r *followRound) run(ctx context.Context) error {
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	retry, pause := time.NewTimer(0), firstPause // all is due
	defer retry.Stop()
	suspected, doubt := r.source.cluster.suspected(r.source.on), newDoubt(r.source.on, r.board)
	defer doubt.wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		var err error
		begin := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.broken.wake:
			_, err = r.broken.drain()
		case <-progress.C:
			if r.board.silentFor(silenceLimit) {
				doubt.begin(ctx)
			}
			err = r.ask(ctx)
		case <-suspected:
			suspected = nil
			doubt.begin(ctx)
			err = r.ask(ctx)
		case p := <-doubt.answers:
			if err = doubt.answer(p); err == nil && doubt.open {
				err = r.ask(ctx)
			}
			suspected = r.source.cluster.suspected(r.source.on)
		case <-doubt.verdict:
			err = doubt.judge()
		case <-retry.C:
			begin = true
		case <-r.board.wake:
			begin = true
		}
		if err != nil {
			return err
		}
		if !begin {
			continue
		}
		if r.begin(ctx) == nil {
			pause = firstPause
			continue
		}
		// The watches that are open are none the worse for it.
		retry.Reset(jitter(pause))
		pause = min(2*pause, lastPause)
	}
}

// ask asks the watches for a word. Without one it would open a stream for nothing.
func (r *followRound) ask(ctx context.Context) error {
	if !r.board.silentFor(0) {
		return nil
	}
	return ask(ctx, r.watch, maxHold)
}

// begin reads what is due and watches it from there on. What it could not read stays
// due.
func (r *followRound) begin(ctx context.Context) error {
	for {
		fs := r.board.takeDue(readTogether)
		if len(fs) == 0 {
			return nil
		}
		h, kvs, err := r.read(ctx, fs)
		if err != nil {
			r.board.giveBack(fs)
			return err
		}
		r.source.setUp(true, nil)
		for i, f := range fs {
			if watched, ok := r.board.opened(ctx, f, h); ok {
				r.open.Go(func() { r.follow(watched, f, h, kvs[i]) })
			}
		}
	}
}

// read reads accounts at one revision, of any member: the watch goes on from there. A
// kv is nil where an account does not exist.
func (r *followRound) read(ctx context.Context, fs []*following) (header, []*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ops := make([]clientv3.Op, len(fs))
	for i, f := range fs {
		ops[i] = clientv3.OpGet(AccountKey(f.key), clientv3.WithSerializable())
	}
	answer, err := txn(ctx, r.source.cluster, nil, ops, nil)
	if err != nil {
		return header{}, nil, fmt.Errorf("read accounts to follow: %w", err)
	}
	kvs := make([]*mvccpb.KeyValue, len(fs))
	for i, o := range answer.Responses {
		if found := o.GetResponseRange().GetKvs(); len(found) > 0 {
			kvs[i] = found[0]
		}
	}
	return header{cluster: answer.Header.ClusterId, revision: answer.Header.Revision}, kvs, nil
}

// follow tells of an account as it was read, then watches it. When the watch ends
// while ctx goes on, the round is over.
func (r *followRound) follow(ctx context.Context, f *following, h header, kv *mvccpb.KeyValue) {
	defer r.board.closed()
	r.board.tellAccount(ctx, f, kv)
	ch := r.watch.Watch(ctx, AccountKey(f.key), clientv3.WithRev(h.revision+1))
	r.board.heardWord(h)
	err, at := errSilent, reached{header: h} // nothing more will come
	for answer := range ch {
		if err = at.check(&answer); err != nil {
			break
		}
		r.board.heardWord(at.header)
		if len(answer.Events) > 0 {
			r.board.tellAccount(ctx, f, newest(&answer))
		}
		err = errSilent
	}
	if ctx.Err() == nil {
		r.broken.fail(fmt.Errorf("watch %s: %w", told(f.key), err))
	}
}

// A reached is how far a watch has come.
type reached struct {
	header
	behind int // words of progress in a row that were from before it
}

// check returns why a watch cannot go on after an answer. One word from before it is
// nothing: it may have overtaken the beginning of the watch.
func (p *reached) check(answer *clientv3.WatchResponse) error {
	if err := answer.Err(); err != nil {
		return err
	}
	id, revision := answer.Header.GetClusterId(), answer.Header.GetRevision()
	if id != 0 && id != p.cluster {
		return errOtherStore
	}
	if revision >= p.revision {
		p.revision, p.behind = revision, 0
		return nil
	}
	if !answer.IsProgressNotify() {
		return nil
	}
	if p.behind++; p.behind > 1 {
		return errOtherStore
	}
	return nil
}
