package store

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// A following is one account that is followed.
type following struct {
	key  quota.Key
	told int64              // revision that OnAccount was called with, -1: none yet; owned by who reads or watches
	stop context.CancelFunc // guarded by Board.mu: ends its watch; nil: none was opened
}

// Follow implements [quota.Board].
func (b *Board) Follow(key quota.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, already := b.followed[key]; already {
		return
	}
	if len(b.followed) >= b.MaxFollowed {
		b.passed++
		return
	}
	f := &following{key: key, told: -1}
	b.followed[key] = f
	b.due = append(b.due, f)
	select {
	case b.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// Unfollow implements [quota.Board].
func (b *Board) Unfollow(key quota.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, followed := b.followed[key]
	if !followed {
		return
	}
	delete(b.followed, key)
	if f.stop != nil {
		f.stop()
	}
}

// allDue has everything read and watched again. No watch is open.
func (b *Board) allDue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = header{}
	b.due = b.due[:0]
	for _, f := range b.followed {
		f.stop = nil
		b.due = append(b.due, f)
	}
}

// takeDue takes at most n of what is due, and drops what is not followed any more.
func (b *Board) takeDue(n int) []*following {
	b.mu.Lock()
	defer b.mu.Unlock()
	var fs []*following
	for len(b.due) > 0 && len(fs) < n {
		f := b.due[0]
		b.due = b.due[1:]
		if b.followed[f.key] == f {
			fs = append(fs, f)
		}
	}
	return fs
}

// giveBack makes fs due again, without a wake-up: the caller waits.
func (b *Board) giveBack(fs []*following) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = append(b.due, fs...)
}

// opened returns a context for f's watch from h on that Unfollow ends; false if f is not
// followed any more.
func (b *Board) opened(ctx context.Context, f *following, h header) (context.Context, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.followed[f.key] != f {
		return nil, false
	}
	ctx, f.stop = context.WithCancel(ctx)
	if b.watching == 0 {
		b.word = time.Now() //nolint:forbidigo // measures silence
	}
	b.watching++
	b.knows(h)
	return ctx, true
}

// closed notes that a watch has ended.
func (b *Board) closed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watching--
}

// heardWord notes that a watch has said something, or was opened, and that the store is
// at h or beyond.
func (b *Board) heardWord(h header) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.word = time.Now() //nolint:forbidigo // measures silence
	b.knows(h)
}

// knows notes a state of the store. The caller holds mu.
func (b *Board) knows(h header) {
	if h.cluster != b.told.cluster || h.revision > b.told.revision {
		b.told = h
	}
}

// newest implements [speaker].
func (b *Board) newest() header {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told
}

// toldAll implements [speaker]. The watches have one stream, so that the word of one
// goes for all.
func (b *Board) toldAll(revision int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told.revision < revision {
		return false
	}
	b.word = time.Now() //nolint:forbidigo // measures silence
	return true
}

// silentFor reports whether the watches have said nothing for d. Where there is none,
// there is no silence.
func (b *Board) silentFor(d time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watching > 0 && time.Since(b.word) > d //nolint:forbidigo // measures silence
}

// tellAccount calls OnAccount unless it knows already, or ctx is done. What this
// version cannot read is told by no one: an operation on it hears why.
func (b *Board) tellAccount(ctx context.Context, f *following, kv *mvccpb.KeyValue) {
	revision := kv.GetModRevision() // 0: it does not exist
	account, err := decodeAccount(kv.GetValue())
	if revision == f.told || ctx.Err() != nil || err != nil || b.OnAccount == nil {
		return
	}
	f.told = revision
	b.OnAccount(f.key, account)
}

// newest returns the key after a response with events; nil: it was deleted.
func newest(r *clientv3.WatchResponse) *mvccpb.KeyValue {
	e := r.Events[len(r.Events)-1]
	if e.Type == mvccpb.Event_DELETE {
		return nil
	}
	return e.Kv
}
