package peers

import (
	"maps"
	"math/bits"
)

// A view is who is live beside this process. It is never changed.
type view struct{ peers map[uint64]*peer }

// SetPeers tells which processes are live, and at what address ("host:port") each
// answers gRPC. This process may be among them. What was queued for one that is not there any more
// is passed on to its successor; what was sent to it with an outcome that is not known is dropped.
// peers is not kept.
func (r *Router) SetPeers(peers map[uint64]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.view.Load()
	next := &view{peers: make(map[uint64]*peer, len(peers))}
	for process, address := range peers {
		if process == r.cfg.Process {
			continue
		}
		p := old.peers[process]
		if p == nil {
			p = newPeer(r, process)
			r.meet(p)
		}
		p.line.move(address)
		next.peers[process] = p
	}
	r.view.Store(next)
	for process, p := range old.peers {
		if next.peers[process] == nil {
			close(p.gone)
		}
	}
	select {
	case r.changed <- struct{}{}:
	default: // Run has yet to see an earlier change
	}
}

// meet hands p to Run, or closes it if that has ended. The caller holds the lock.
func (r *Router) meet(p *peer) {
	if r.stopped.Load() {
		p.leave()
		return
	}
	r.fresh = append(r.fresh, p)
}

// owner returns the peer that settles what a process decided: that process, or the one that
// remembers what it has settled, if it can be reached, else the one that takes its place. Nil: this process does.
func (r *Router) owner(decider uint64) *peer {
	if decider == r.cfg.Process || r.stopped.Load() {
		return nil
	}
	peers := r.view.Load().peers
	knows := decider
	if process, ok := r.successor(decider); ok {
		knows = process
	}
	if knows == r.cfg.Process {
		return nil
	}
	if p := peers[knows]; p != nil && !p.away.Load() {
		return p
	}
	var heir *peer
	most := weight(decider, r.cfg.Process)
	for process, p := range peers {
		if w := weight(decider, process); w > most && !p.away.Load() {
			heir, most = p, w
		}
	}
	return heir
}

// SetSuccessors tells of processes that are gone which live one remembers what each of them
// has settled: it takes its place. It may be this one. successors is not kept.
func (r *Router) SetSuccessors(successors map[uint64]uint64) {
	kept := maps.Clone(successors)
	r.successors.Store(&kept)
}

// successor returns the live process that remembers what another one has settled.
func (r *Router) successor(of uint64) (process uint64, ok bool) {
	if all := r.successors.Load(); all != nil {
		process, ok = (*all)[of]
	}
	return process, ok
}

// weight is the claim that a process has to the place of a decider: the highest one of
// the live takes it, so that little moves when others come or go (rendezvous hashing).
// All replicas must agree: it is never changed.
func weight(decider, candidate uint64) uint64 {
	return mix(mix(decider) + bits.RotateLeft64(candidate, 32))
}

// mix is the end of SplitMix64, a permutation: no two candidates have one weight.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
