package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// doubtLimit is how long watches may take to prove themselves once they are in doubt. A
// stream that hangs says nothing for 13 s.
const doubtLimit = 2 * time.Second

// A speaker is some watches on one stream.
type speaker interface {
	// silentFor reports whether they have said nothing for d.
	silentFor(d time.Duration) bool
	// newest returns the newest state of the store that they know of.
	newest() header
	// toldAll reports whether they have told of all up to a revision. If so, that
	// counts as word from them.
	toldAll(revision int64) bool
}

// A doubt finds out whether watches that say nothing have anything to say. A watch from
// the next revision on is silent until something is written, also when it is asked for
// its progress, at the start and after each new connection of the client. So silence
// alone is no fault: it is one if a read on the same endpoint gets no answer either, or
// finds what the watches should have told of and do not tell of within doubtLimit.
//
// It belongs to the goroutine that follows the watches.
type doubt struct {
	on    *endpoint // that the watches are open on
	about speaker

	open    bool             // between begin and the verdict
	began   time.Time        // when it was opened
	known   header           // what the watches knew of then
	answers chan proof       // takes the answer of the read
	last    proof            // that answer
	verdict <-chan time.Time // fires when it is time for the verdict; nil: not yet
	reading sync.WaitGroup
}

// A proof is what a read on the watches' endpoint has brought.
type proof struct {
	header
	err error
}

func newDoubt(on *endpoint, about speaker) *doubt {
	return &doubt{on: on, about: about, answers: make(chan proof, 1)}
}

// begin asks the endpoint for its revision, through the leader, unless that is under
// way. It does not wait.
func (d *doubt) begin(ctx context.Context) {
	if d.open {
		return
	}
	d.open, d.began, d.known = true, time.Now(), d.about.newest() //nolint:forbidigo // measures silence
	d.reading.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, doubtLimit)
		defer cancel()
		r, err := get(ctx, d.on.client, EpochKey, clientv3.WithKeysOnly())
		p := proof{err: err}
		if err == nil {
			p.header = header{cluster: r.Header.GetClusterId(), revision: r.Header.GetRevision()}
		}
		d.answers <- p // there is room: one is under way at a time
	})
}

// answer takes in what the read has brought. If more is to be found out, it sets the
// time of the verdict; the watches are to be asked once more before it.
func (d *doubt) answer(p proof) error {
	d.last = p
	switch {
	case p.err != nil:
		d.verdict = time.After(doubtLimit - time.Since(d.began)) //nolint:forbidigo // measures silence
	case p.cluster != d.known.cluster || p.revision < d.known.revision:
		return errOtherStore
	case d.about.toldAll(p.revision):
		d.open = false
	default:
		d.verdict = time.After(doubtLimit)
	}
	return nil
}

// judge ends the doubt and returns what is wrong with the watches; nil if nothing is.
func (d *doubt) judge() error {
	d.open, d.verdict = false, nil
	if !d.about.silentFor(doubtLimit) {
		return nil
	}
	switch err := d.last.err; {
	case err == nil && d.about.toldAll(d.last.revision):
		return nil
	case err == nil:
		return fmt.Errorf("%w by the watch, though it is at revision %d", errSilent, d.last.revision)
	case isSilence(err):
		return fmt.Errorf("%w by the watch nor by a read: %w", errSilent, err)
	default:
		return fmt.Errorf("ask for the revision: %w", err)
	}
}

// wait waits until no read is under way: ctx of begin is done.
func (d *doubt) wait() { d.reading.Wait() }
