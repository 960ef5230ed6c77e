package plan

import "maps"

// A sharded is a map in many parts. A copy of it costs nothing but a number: an
// edit copies the one part that it changes, and the way to it, if a copy has been
// taken since. So an edit costs the same with a thousand entries and with a
// million.
type sharded[K comparable, V any] struct {
	groups []*group[K, V] // nil where nothing is
	age    uint64         // when groups was copied
}

type group[K comparable, V any] struct {
	shards [fanOut]*shard[K, V]
	age    uint64
}

type shard[K comparable, V any] struct {
	entries map[K]V
	age     uint64
}

// fanOut keeps parts at some 250 entries with a million in all, in two steps of 64.
// Copying a part and the way to it is then some 15 KB.
const fanOut = 64

func (s *sharded[K, V]) get(at uint64, key K) (none V, ok bool) {
	if s.groups == nil {
		return none, false
	}
	g := s.groups[at/fanOut%fanOut]
	if g == nil || g.shards[at%fanOut] == nil {
		return none, false
	}
	v, ok := g.shards[at%fanOut].entries[key]
	return v, ok
}

// part returns the part at to be changed, which belongs to copies taken at age or
// later alone.
func (s *sharded[K, V]) part(at, age uint64) map[K]V {
	if s.groups == nil || s.age < age {
		old := s.groups
		s.groups = make([]*group[K, V], fanOut)
		copy(s.groups, old)
		s.age = age
	}
	g := &s.groups[at/fanOut%fanOut]
	switch {
	case *g == nil:
		*g = &group[K, V]{age: age}
	case (*g).age < age:
		*g = &group[K, V]{shards: (*g).shards, age: age}
	}
	p := &(*g).shards[at%fanOut]
	switch {
	case *p == nil:
		*p = &shard[K, V]{entries: map[K]V{}, age: age}
	case (*p).age < age:
		*p = &shard[K, V]{entries: maps.Clone((*p).entries), age: age}
	}
	return (*p).entries
}

// all calls each for every value, in no order.
func (s *sharded[K, V]) all(each func(V)) {
	for _, g := range s.groups {
		if g == nil {
			continue
		}
		for _, p := range g.shards {
			if p == nil {
				continue
			}
			for _, v := range p.entries {
				each(v)
			}
		}
	}
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
