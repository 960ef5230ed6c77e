package store

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// read reads the accounts of as in one request.
func (s *Accounts) read(ctx context.Context, as []*attempt) {
	if len(as) == 0 {
		return
	}
	ops := make([]clientv3.Op, 0, len(as))
	for _, a := range as {
		var opts []clientv3.OpOption
		if !a.linear() {
			opts = append(opts, clientv3.WithSerializable())
		}
		ops = append(ops, clientv3.OpGet(a.key, opts...))
	}
	found, err := s.fetch(ctx, ops)
	if divides(err) && len(as) > 1 {
		// One of them may be to blame.
		s.read(ctx, as[:len(as)/2])
		s.read(ctx, as[len(as)/2:])
		return
	}
	for i, a := range as {
		if err != nil {
			a.fail(err)
			continue
		}
		a.see(found[i], a.linear())
	}
}

// fetch does gets, at most 128, in one request.
func (s *Accounts) fetch(ctx context.Context, gets []clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceFor(s.roundTrip()))
	defer cancel()
	s.counters.reads.Add(1)
	if len(gets) == 1 {
		r, err := s.kv.Do(ctx, gets[0])
		if err != nil {
			return nil, err
		}
		return [][]*mvccpb.KeyValue{r.Get().Kvs}, nil
	}
	r, err := txn(ctx, s.kv, nil, gets, nil)
	if err != nil {
		return nil, err
	}
	found := make([][]*mvccpb.KeyValue, 0, len(gets))
	for _, o := range r.Responses {
		found = append(found, o.GetResponseRange().GetKvs())
	}
	return found, nil
}

// maxGone bounds how many holders one operation folds, so that its transaction
// stays far below the 128 operations that etcd allows. The next one folds the rest.
const maxGone = 32

// findGone fills in the holders that do not seem liable any more.
func (s *Accounts) findGone(ctx context.Context, as []*attempt) {
	var ask []*attempt
	for _, a := range as {
		a.op.Gone = a.suspects()
		if len(a.op.Gone) > 0 && s.Liable == nil {
			ask = append(ask, a)
		}
	}
	if len(ask) == 0 {
		return
	}
	here, err := s.liableOf(ctx, ask)
	for _, a := range ask {
		if err != nil {
			a.fail(err)
			continue
		}
		a.op.Gone = slices.DeleteFunc(a.op.Gone, func(id string) bool {
			a.here[id] = a.here[id] || here[id]
			return here[id]
		})
	}
}

// suspects returns the holders, but for a's own, that are not known to be liable.
func (a *attempt) suspects() []string {
	most := min(maxGone, maxOps-2-len(a.op.Guards))
	var ids []string
	for _, h := range a.seen.account.Holders {
		if len(ids) >= most {
			break
		}
		if !a.here[h.ID] && (a.store.Liable == nil || !a.store.Liable(h.ID)) {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// liableOf asks which of the suspects of as are liable.
func (s *Accounts) liableOf(ctx context.Context, as []*attempt) (map[string]bool, error) {
	here := map[string]bool{}
	var ids []string
	for _, a := range as {
		for _, id := range a.op.Gone {
			if _, listed := here[id]; !listed {
				here[id] = false
				ids = append(ids, id)
			}
		}
	}
	for some := range slices.Chunk(ids, maxOps) {
		gets := make([]clientv3.Op, 0, len(some))
		for _, id := range some {
			gets = append(gets, clientv3.OpGet(liableKey(id), clientv3.WithKeysOnly(), clientv3.WithSerializable()))
		}
		found, err := s.fetch(ctx, gets)
		if err != nil {
			return nil, err
		}
		for i, id := range some {
			here[id] = len(found[i]) > 0
		}
	}
	return here, nil
}
