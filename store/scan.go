package store

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is how many keys are read at once. Each page makes etcd walk the rest
// of its index, so that pages of 1,000 are eight times slower than these.
const pageSize = 10_000

// A span is a range of keys, the end not included.
type span struct{ from, to string }

func prefixSpan(prefix string) span { return span{prefix, clientv3.GetPrefixRangeEnd(prefix)} }

// A header tells which store answered, and when.
type header struct {
	cluster  uint64
	revision int64
}

// pageTimeout bounds one page: a member that hangs must not hang its reader.
const pageTimeout = 10 * time.Second

func page(ctx context.Context, kv Doer, from, to string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return get(ctx, kv, from, clientv3.WithRange(to), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
}

// scan reads all keys of a span at one revision (0: the newest) and calls each
// with them in order. It returns that revision.
func scan(ctx context.Context, kv Doer, s span, revision int64, each func(*mvccpb.KeyValue)) (header, error) {
	return scanPages(ctx, kv, s, revision, func(kvs []*mvccpb.KeyValue) {
		for _, k := range kvs {
			each(k)
		}
	})
}

// scanPages is scan for users that take many keys at once.
func scanPages(ctx context.Context, kv Doer, s span, revision int64, each func([]*mvccpb.KeyValue)) (header, error) {
	h := header{revision: revision}
	for from := s.from; ; {
		r, err := page(ctx, kv, from, s.to, h.revision)
		if err != nil {
			return h, fmt.Errorf("read %s: %w", s.from, err)
		}
		h.cluster = r.Header.ClusterId
		if h.revision == 0 {
			h.revision = r.Header.Revision
		}
		each(r.Kvs)
		if !r.More || len(r.Kvs) == 0 {
			return h, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}
