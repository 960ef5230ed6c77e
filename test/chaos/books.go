package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// An event is one change of one key.
type event struct {
	Revision int64  `json:"revision"`
	Key      string `json:"key"`
	Value    []byte `json:"value,omitempty"`
	Deleted  bool   `json:"deleted,omitempty"`
	At       int64  `json:"at"` // when it was heard of, by mono
}

// Books hold every change of every key, from the first revision on.
type books struct {
	client *clientv3.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	events []event // guarded by mu, as all below
	last   int64   // revision that all events are known up to
	failed error
	moved  chan struct{} // closed when last or failed changes
}

// openBooks follows everything until close.
func openBooks(ctx context.Context, client *clientv3.Client) *books {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &books{client: client, cancel: cancel, done: make(chan struct{}), moved: make(chan struct{})}
	go func() {
		defer close(b.done)
		for ctx.Err() == nil && b.follow(ctx) == nil {
			_ = sleep(ctx, 50*time.Millisecond)
		}
	}()
	return b
}

// follow reads events from where they ended until the watch does. An error tells
// that the books can never be complete again.
func (b *books) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := b.client.Watch(clientv3.WithRequireLeader(ctx), store.Prefix, clientv3.WithPrefix(), clientv3.WithRev(b.heard()+1), clientv3.WithFragment())
	for r := range watch {
		if r.CompactRevision > 0 {
			return b.note(nil, fmt.Errorf("revisions up to %d are compacted: nobody knows what they held", r.CompactRevision))
		}
		if err := b.note(r.Events, nil); err != nil {
			return err
		}
	}
	return nil
}

// note takes in events. A revision that is left out is an error: every write of a
// world is below the prefix.
func (b *books) note(events []*clientv3.Event, failed error) error {
	now := mono()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		if rev := e.Kv.ModRevision; b.last > 1 && rev != b.last && rev != b.last+1 {
			failed = fmt.Errorf("the watch went from revision %d to %d", b.last, rev)
		}
		b.last = e.Kv.ModRevision
		b.events = append(b.events, event{
			Revision: e.Kv.ModRevision, Key: string(e.Kv.Key), Value: e.Kv.Value, Deleted: e.Type == mvccpb.Event_DELETE, At: now,
		})
	}
	b.failed = failed
	close(b.moved)
	b.moved = make(chan struct{})
	return failed
}

func (b *books) heard() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// upTo waits until the books hold a revision.
func (b *books) upTo(ctx context.Context, revision int64) error {
	timeout := time.After(30 * time.Second) // a watch on a member that hung takes 13 s to move
	for {
		b.mu.Lock()
		last, failed, moved := b.last, b.failed, b.moved
		b.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case last >= revision:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return fmt.Errorf("the watch is at revision %d and etcd at %d", last, revision)
		}
	}
}

// all returns all events so far.
func (b *books) all() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events[:len(b.events):len(b.events)]
}

// close ends the watch.
func (b *books) close() {
	b.cancel()
	<-b.done
}

// write keeps all events in a file.
func (b *books) write(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, e := range b.all() {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return w.Flush()
}

// readBooks reads what write wrote.
func readBooks(path string) ([]event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var events []event
	for dec := json.NewDecoder(bufio.NewReader(f)); ; {
		var e event
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return events, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		events = append(events, e)
	}
}
