package ledger

import "sync"

// A group sums the units of one key since they were last taken.
type group struct {
	key    key // constant
	units  int64
	latest int64  // wall time of the latest use
	round  int64  // in which units were last taken
	next   *group // of the changed ones
	beside *group // one whose key has the same hash
}

// A shard has the groups of some keys.
type shard struct {
	mu      sync.Mutex
	groups  map[uint64]*group // by the hash of the key, which is made once and not for all of it
	changed *group            // the groups that have units, linked
	pending int               // of them
	closed  bool              // nothing is taken from it any more

	_ [64]byte // two shards in one cache line would slow each other down
}

// A taken is what a group had.
type taken struct {
	key           *key
	units, latest int64
}

// add adds units to k's group. It returns false, and has added nothing, if there is no
// such group and no room for it, if the sum would be too large, or after close.
func (s *shard) add(hash uint64, k *key, units, at int64, room func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	g := s.groups[hash]
	for g != nil && g.key != *k {
		g = g.beside
	}
	if g == nil {
		if !room() {
			return false
		}
		g = &group{key: k.clone(), beside: s.groups[hash]}
		s.groups[hash] = g
	}
	if !fits(g.units, units) {
		return false
	}
	if g.units == 0 {
		g.next, s.changed = s.changed, g
		s.pending++
		g.latest = at
	}
	g.units += units
	g.latest = max(g.latest, at)
	return true
}

// take appends what all groups have to dst, and leaves them without.
func (s *shard) take(dst []taken, round int64) []taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := s.changed; g != nil; {
		dst = append(dst, taken{&g.key, g.units, g.latest})
		next := g.next
		g.units, g.round, g.next = 0, round, nil
		g = next
	}
	s.changed, s.pending = nil, 0
	return dst
}

// sweep forgets the groups that have no units and had none in the rounds after round.
// It returns how many those were.
func (s *shard) sweep(round int64) (swept int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, g := range s.groups {
		var kept *group
		for g != nil {
			beside := g.beside
			if g.units == 0 && g.round <= round {
				swept++
			} else {
				g.beside, kept = kept, g
			}
			g = beside
		}
		if kept == nil {
			delete(s.groups, hash)
		} else {
			s.groups[hash] = kept
		}
	}
	return swept
}

func (s *shard) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending
}

func (s *shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
