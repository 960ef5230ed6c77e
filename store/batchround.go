package store

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxOps is how many operations or conditions etcd allows in a transaction.
	// It can be raised there; nothing here relies on that (case C111).
	maxOps = 128
	// maxInner is how many conditions or reads a nested transaction may have:
	// etcd counts the greatest of them on top of the outer operations.
	maxInner = 60
	// maxBytes bounds a batch far below the 1.5 MiB that etcd takes. An account
	// that is larger by itself travels alone.
	maxBytes = 512 << 10
)

// round reads what is to be read of as, computes, and swaps. as are of different
// accounts. Those that are open afterwards have lost and have what they lost to.
func (s *Accounts) round(ctx context.Context, as []*attempt) {
	s.read(ctx, where(as, (*attempt).unread))
	s.findGone(ctx, where(as, (*attempt).unapplied))
	for _, a := range as {
		if a.open() {
			a.prepare()
		}
	}
	for rest := where(as, (*attempt).open); len(rest) > 0; {
		var batch []*attempt
		batch, rest = s.cut(rest)
		s.swap(ctx, batch)
	}
}

// cut divides as into what fits into one transaction, and the rest. It leaves out
// those whose callers have left.
func (s *Accounts) cut(as []*attempt) (batch, rest []*attempt) {
	size, full := 0, false
	apps := map[string]bool{}
	for _, a := range as {
		if a.left.Load() {
			continue
		}
		a.t.firstUse = a.t.app != "" && !s.knownUsed(a.t.app)
		switch n, alone := a.t.size(), a.t.width() > maxInner; {
		case full, len(batch) > 0 && (alone || size+n > maxBytes):
			rest = append(rest, a)
		case a.t.firstUse && apps[a.t.app]:
			// etcd refuses a transaction that puts a key twice, and an outer put
			// would stay if the account's did not: the second waits for the first.
			rest = append(rest, a)
		default:
			batch, size, full = append(batch, a), size+n, alone
			apps[a.t.app] = a.t.firstUse || apps[a.t.app]
		}
	}
	return batch, rest
}

// knownUsed reports whether the used key of an app is known to exist.
func (s *Accounts) knownUsed(app string) bool {
	_, known := s.used.Load(app)
	return known
}

// swap sends the transactions of as in one and takes in what became of each.
func (s *Accounts) swap(ctx context.Context, as []*attempt) {
	if len(as) == 0 {
		return
	}
	r, err := s.send(ctx, as)
	switch {
	case err != nil:
		s.failed(ctx, as, err)
		return
	case len(as) == 1:
		as[0].learn(r.Succeeded, r.Responses)
	default:
		for i, a := range as {
			inner := r.Responses[i].GetResponseTxn()
			a.learn(inner.GetSucceeded(), inner.GetResponses())
		}
	}
	as[0].line.widen()
}

// send sends as one request: as a plain transaction if it is one, else as
// nested ones without an outer condition, so that each wins or loses by itself.
func (s *Accounts) send(ctx context.Context, as []*attempt) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceFor(s.roundTrip()))
	defer cancel()
	if slices.ContainsFunc(as, (*attempt).writes) {
		s.counters.writes.Add(1)
	} else {
		s.counters.reads.Add(1)
	}
	if len(as) == 1 {
		t := as[0].t
		return txn(ctx, s.kv, t.compares, t.puts(), t.reads())
	}
	ops := make([]clientv3.Op, 0, len(as))
	for _, a := range as {
		ops = append(ops, clientv3.OpTxn(a.t.compares, a.t.puts(), a.t.reads()))
	}
	return txn(ctx, s.kv, nil, ops, nil)
}

// failed takes in that the transaction of as failed as a whole. Where one of them
// may be to blame the others are sent without it.
func (s *Accounts) failed(ctx context.Context, as []*attempt, err error) {
	switch {
	case overloaded(err):
		as[0].line.narrow()
	case len(as) > 1 && divides(err):
		s.swap(ctx, as[:len(as)/2])
		s.swap(ctx, as[len(as)/2:])
		return
	case noSpace(err) && slices.ContainsFunc(as, (*attempt).writes):
		s.swap(ctx, where(as, (*attempt).reads))
		s.recheck(ctx, where(as, (*attempt).writes), err)
		return
	}
	for _, a := range as {
		if a.t.writes && !definite(err) {
			a.lose(err)
			continue
		}
		a.fail(err)
	}
}

// recheck finds out what became of as, which etcd answered with noSpace: the transaction
// that fills the database is applied and gets the same answer as those that are refused
// after it. None is applied later.
func (s *Accounts) recheck(ctx context.Context, as []*attempt, noSpace error) {
	gets := make([]clientv3.Op, 0, len(as))
	for _, a := range as {
		gets = append(gets, clientv3.OpGet(a.key))
	}
	found, err := s.fetch(ctx, gets)
	for i, a := range as {
		if err != nil {
			a.lose(err)
			continue
		}
		was := a.seen.revision
		a.see(found[i], true)
		switch {
		case !a.open(): // cannot be read, and so was moved by somebody else
			a.lose(a.err)
		case replayed(a.seen.account, a.op): // the next round answers
		case a.seen.revision != was: // applied and folded away, or by somebody else
			a.lose(noSpace)
		default:
			a.fail(noSpace)
		}
	}
}
