package plan

import "maps"

// A sharded is a map in many parts. A copy of it costs nothing but a number: an
// edit copies the one part that it changes, if a copy has been taken since the
// part was last copied. So an edit costs the same with a thousand entries and
// with a million.
type sharded[K comparable, V any] struct {
	shards []*shard[K, V]
	age    uint64 // when shards was copied
}

type shard[K comparable, V any] struct {
	entries map[K]V
	age     uint64 // when entries was copied
}

// shardCount keeps parts at some 250 entries with a million entries, which take
// about 10 µs to copy.
const shardCount = 1 << 12

func newSharded[K comparable, V any](age uint64) sharded[K, V] {
	return sharded[K, V]{shards: make([]*shard[K, V], shardCount), age: age}
}

func (s *sharded[K, V]) get(at uint64, key K) (V, bool) {
	p := s.shards[at%shardCount]
	if p == nil {
		var none V
		return none, false
	}
	v, ok := p.entries[key]
	return v, ok
}

// part returns the part at to be changed, which belongs to copies taken at age or
// later alone.
func (s *sharded[K, V]) part(at, age uint64) map[K]V {
	if s.age < age {
		s.shards = append([]*shard[K, V](nil), s.shards...)
		s.age = age
	}
	p := &s.shards[at%shardCount]
	switch {
	case *p == nil:
		*p = &shard[K, V]{entries: map[K]V{}, age: age}
	case (*p).age < age:
		*p = &shard[K, V]{entries: maps.Clone((*p).entries), age: age}
	}
	return (*p).entries
}

// A small is a map that is copied as a whole.
type small[V any] struct {
	entries map[string]V
	age     uint64
}

func (s *small[V]) edit(age uint64) map[string]V {
	if s.age < age || s.entries == nil {
		s.entries = maps.Clone(s.entries)
		if s.entries == nil {
			s.entries = map[string]V{}
		}
		s.age = age
	}
	return s.entries
}
