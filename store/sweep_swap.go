package store

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Bounds of one transaction: etcd allows 128 compares, which the accounts and the
// liable keys share, and 1.5 MiB.
const (
	swapsTogether = 64
	goneTogether  = 64
	bytesTogether = 256 << 10
)

// A swap changes one key if it is as it was read and some holders are not liable.
type swap struct {
	key      string
	revision int64
	op       clientv3.Op
	size     int // of op, in bytes
	gone     []string
	units    int64 // that it returns
	ended    bool  // it removes the key
}

// commit makes swaps, many in one plain transaction, and returns those that it
// made. What has moved, or has a holder that is here after all, is left out: somebody
// else has seen to it, or will. An error ends it; what was under way then may have
// been made, and is not returned.
func (s *Sweeper) commit(ctx context.Context, swaps []swap) (done []swap, err error) {
	for len(swaps) > 0 {
		n := together(swaps)
		made, err := s.commitTogether(ctx, swaps[:n])
		if err != nil {
			return done, err
		}
		done, swaps = append(done, made...), swaps[n:]
	}
	return done, nil
}

// together returns how many of swaps, at least one, fit into one transaction.
func together(swaps []swap) int {
	gone, size := map[string]bool{}, 0
	for i, w := range swaps {
		for _, id := range w.gone {
			gone[id] = true
		}
		size += w.size
		if i > 0 && (i == swapsTogether || len(gone) > goneTogether || size > bytesTogether) {
			return i
		}
	}
	return len(swaps)
}

// commitTogether makes swaps in one transaction. When it loses, it reads in the same
// transaction which ones did, and tries without them.
func (s *Sweeper) commitTogether(ctx context.Context, swaps []swap) (made []swap, err error) {
	for len(swaps) > 0 {
		gone := goneOf(swaps)
		var compares []clientv3.Cmp
		var then, otherwise []clientv3.Op
		for _, w := range swaps {
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.revision))
			then = append(then, w.op)
			otherwise = append(otherwise, clientv3.OpGet(w.key, clientv3.WithKeysOnly()))
		}
		for _, id := range gone {
			compares = append(compares, clientv3.Compare(clientv3.CreateRevision(liableKey(id)), "=", 0))
			otherwise = append(otherwise, clientv3.OpGet(liableKey(id), clientv3.WithKeysOnly()))
		}
		r, err := s.txn(ctx, compares, then, otherwise)
		if err != nil {
			return nil, fmt.Errorf("settle %d keys from %s on: %w", len(swaps), toldOf(swaps[0].key), err)
		}
		if r.Succeeded {
			return swaps, nil
		}
		swaps = stillGood(swaps, gone, r.Responses)
	}
	return nil, nil
}

// goneOf returns the holders that must not be liable for swaps, each once.
func goneOf(swaps []swap) []string {
	var gone []string
	for _, w := range swaps {
		gone = append(gone, w.gone...)
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// stillGood returns the swaps whose conditions hold by the answers of a transaction
// that lost: those of their keys, then those of the holders' liable keys. At least one
// swap is not among them.
func stillGood(swaps []swap, gone []string, rs []*etcdserverpb.ResponseOp) []swap {
	revision := func(i int) int64 {
		kvs := rs[i].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			return 0
		}
		return kvs[0].ModRevision
	}
	here := map[string]bool{}
	for i, id := range gone {
		here[id] = revision(len(swaps)+i) > 0
	}
	var good []swap
	for i, w := range swaps {
		if revision(i) == w.revision && !slices.ContainsFunc(w.gone, func(id string) bool { return here[id] }) {
			good = append(good, w)
		}
	}
	return good
}
