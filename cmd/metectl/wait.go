package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// pollEvery is how often --wait looks: replicas take well under a second.
const pollEvery = 50 * time.Millisecond

// quietFor is how long --wait listens for a rejection of tenants and credentials:
// replicas enforce them without publishing a copy, so silence is all that can be
// heard. A rejection arrives well under a second after the write.
const quietFor = 2 * time.Second

// standsFor is how long a rejection must stand to be believed: of documents written
// together, one may be rejected for a moment until another is published.
const standsFor = 500 * time.Millisecond

// A watched is a written document whose fate is awaited.
type watched struct {
	step
	outcome  outcome
	rejected time.Time // since when it has been seen rejected; zero: it is not
}

// An outcome is what became of one written document.
type outcome int

const (
	pending outcome = iota
	enforced
	rejected
)

// awaitEnforced waits until every written document is enforced or rejected.
func (c *cli) awaitEnforced(ctx context.Context, steps []step) error {
	var written []*watched
	for _, s := range steps {
		if s.changes() {
			written = append(written, &watched{step: s})
		}
	}
	began := time.Now()
	err := c.withStore(ctx, "cannot wait", func(ctx context.Context, client *clientv3.Client) error {
		for {
			now := time.Now()
			if err := c.look(ctx, client, written, now, now.Sub(began) >= quietFor); err != nil {
				return err
			}
			if count(written, pending) == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pollEvery):
			}
		}
	})
	var f *failure
	if ctx.Err() != nil || errors.As(err, &f) && f.code == exitForbidden {
		return err
	}
	return c.outcome(written)
}

// look finds out what has become of the documents that are pending. quiet: what
// is published nowhere has been silent for long enough.
func (c *cli) look(ctx context.Context, client *clientv3.Client, written []*watched, now time.Time, quiet bool) error {
	all, err := store.Statuses(ctx, client)
	if err != nil {
		return err
	}
	for _, w := range written {
		if w.outcome != pending {
			continue
		}
		at := slices.IndexFunc(all, func(r store.Rejection) bool {
			return r.Kind == w.doc.Kind && r.Name == w.doc.Name && r.Revision >= w.revision
		})
		switch {
		case at >= 0 && w.rejected.IsZero():
			w.rejected = now
		case at >= 0 && now.Sub(w.rejected) >= standsFor:
			w.outcome = rejected
			c.say("%s is rejected", shortReference(w.doc.Kind, w.doc.Name))
			for _, line := range rejectionLines(all[at]) {
				c.say("%s", line)
			}
		case at >= 0:
		default:
			w.rejected = time.Time{}
			if err := settled(ctx, client, w, quiet); err != nil {
				return err
			}
		}
	}
	return nil
}

// settled notes that w is enforced, if it is.
func settled(ctx context.Context, client *clientv3.Client, w *watched, quiet bool) error {
	is := quiet
	if store.Published(w.doc.Kind) {
		var err error
		if is, err = isEffective(ctx, client, w.step); err != nil {
			return err
		}
	}
	if is {
		w.outcome = enforced
	}
	return nil
}

// isEffective reports whether effective/ holds the step's revision, or a later one.
func isEffective(ctx context.Context, client *clientv3.Client, s step) (bool, error) {
	r, err := client.Get(ctx, store.EffectiveKey(s.doc.Kind, s.doc.Name))
	if err != nil || len(r.Kvs) == 0 {
		return false, err
	}
	var record struct {
		SourceRevision int64 `json:"source_revision"`
	}
	if err := json.Unmarshal(r.Kvs[0].Value, &record); err != nil {
		return false, fmt.Errorf("read %s: %w", r.Kvs[0].Key, err)
	}
	return record.SourceRevision >= s.revision, nil
}

// outcome sums up what the wait has found.
func (c *cli) outcome(written []*watched) error {
	switch bad, open := count(written, rejected), count(written, pending); {
	case bad == 0 && open == 0:
		if len(written) > 0 {
			c.say("%s enforced", plural(len(written), "document"))
		}
		return nil
	case open == 0 && bad == len(written):
		return &failure{
			code: exitInvalid, what: "nothing of it is enforced", why: "replicas reject " + plural(bad, "document"),
			next: "a version that was valid before stays in force, and where there is none on_unavailable decides; correct the document and apply it again",
		}
	case open == 0:
		return &failure{
			code: exitPartly, what: "not all of it is enforced", why: fmt.Sprintf("replicas reject %d of %d documents", bad, len(written)),
			next: "correct the rejected documents and apply them again",
		}
	default:
		return &failure{
			code: exitPartly, what: "written, but not confirmed",
			why:  fmt.Sprintf("no replica has confirmed %s within %s", plural(open, "document"), c.timeout),
			next: "metectl status shows the live replicas; --timeout allows more time",
		}
	}
}

func count(written []*watched, which outcome) int {
	n := 0
	for _, w := range written {
		if w.outcome == which {
			n++
		}
	}
	return n
}
