package authz

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// replayFor is for how long a completed mutation is remembered.
	replayFor = 24 * time.Hour

	maxReplayKey  = 255     // bytes of an idempotency key
	maxReplayText = 2 << 10 // bytes of all that tells one mutation from another

	replayShards   = 16
	replaysByShard = 6250 // 100,000 in all
)

// replayKey returns what tells a mutation from all others but its own replays: a hash
// of the app, the tenant, the method, the path as it was received and the
// idempotency-key. It is not ok for requests that are no mutation, have no such
// header or several, or one that is too long.
//
// The hash is in the reservation's token, so it is the same on every replica and after
// every start: no key of one process goes in. It is SHA-256, cut to 128 bits, and not a
// faster one under a key that everybody can read in this file, since callers choose
// what is hashed: two mutations of one hash cannot be found in practice.
func replayKey(app, tenant string, req *Request) (key [16]byte, ok bool) {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return key, false
	}
	value, lines := req.lines("idempotency-key")
	value = unquoted(value)
	if lines != 1 || value == "" || len(value) > maxReplayKey {
		return key, false
	}
	return hashOf(app, tenant, req.Method, req.Path, value)
}

// hashOf returns a hash of texts, each with its length; it is not ok if they are too
// long. It is apart from replayKey because it needs stack that most requests do not.
func hashOf(parts ...string) (hash [16]byte, ok bool) {
	var buf [maxReplayText]byte
	n := 0
	for _, part := range parts {
		if n+4+len(part) > len(buf) {
			return hash, false
		}
		binary.LittleEndian.PutUint32(buf[n:], uint32(len(part)))
		n += 4 + copy(buf[n+4:], part)
	}
	sum := sha256.Sum256(buf[:n])
	return [16]byte(sum[:16]), true
}

// unquoted returns an idempotency key without its quotes: it is to be a quoted string
// (draft-ietf-httpapi-idempotency-key-header), and most clients leave the quotes out.
func unquoted(value string) string {
	value = strings.TrimSpace(value)
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

// completed remembers mutations that were completed, by their replayKey, so that who
// asks for his own result again is not refused (C16). It remembers the latest 100,000
// for 24 hours. The zero completed is empty. It is safe for concurrent use.
//
// A remembered key is no proof: an upstream that knows nothing of idempotency keys does
// the work again, and one key would open an exhausted quota for ever. So a key counts
// only where the upstream is known to replay: it has marked an answer to this very
// key, or one of the same route within 24 hours. A key that was worked for twice does
// not count any more.
type completed struct {
	shards [replayShards]replayShard

	mu     sync.RWMutex
	routes map[replayRoute]time.Time // when one of its answers was marked last
}

// A replayRoute is a route rule; "": all requests without one of a name. The
// documents bound how many there are.
type replayRoute struct{ app, rule string }

type replayShard struct {
	mu   sync.RWMutex
	at   map[[16]byte]int32 // in ring
	ring []replayEntry
	hand int // the oldest, once ring is full
}

type replayEntry struct {
	key   [16]byte
	since int64 // second
	state replayState
}

// A replayState is what is known of a key.
type replayState uint8

const (
	replayCompleted replayState = iota + 1 // once
	replayMarked                           // and the upstream has answered it from memory
	replayRepeated                         // the upstream has done the work again
)

// add remembers that a mutation of a route was completed at now: it was worked for, or,
// if it was replayed, answered from memory and so marked by the upstream. It is to be
// told once of each request.
func (c *completed) add(app, rule string, key [16]byte, replayed bool, now time.Time) {
	if replayed {
		c.mark(replayRoute{strings.Clone(app), strings.Clone(rule)}, now)
	}
	s := c.shard(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.at[key]; ok && s.ring[i].lasts(now) {
		if e := &s.ring[i]; replayed {
			e.state = replayMarked
		} else {
			e.state = replayRepeated
		}
		return
	}
	state := replayCompleted
	if replayed {
		state = replayMarked
	}
	s.put(replayEntry{key: key, since: now.Unix(), state: state})
}

// has reports whether a mutation of a route is known to be answered from memory.
func (c *completed) has(app, rule string, key [16]byte, now time.Time) bool {
	s := c.shard(&key)
	s.mu.RLock()
	state := replayState(0)
	if i, ok := s.at[key]; ok && s.ring[i].lasts(now) {
		state = s.ring[i].state
	}
	s.mu.RUnlock()
	switch state {
	case replayMarked:
		return true
	case replayCompleted:
		c.mu.RLock()
		defer c.mu.RUnlock()
		marked, ok := c.routes[replayRoute{app, rule}]
		return ok && now.Before(marked.Add(replayFor))
	case replayRepeated:
	}
	return false
}

func (c *completed) mark(r replayRoute, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.routes == nil {
		c.routes = make(map[replayRoute]time.Time)
	}
	c.routes[r] = now
}

func (c *completed) shard(key *[16]byte) *replayShard { return &c.shards[key[0]%replayShards] }

// put remembers e, in place of the oldest entry if there is no room. An entry of e's key
// counts no more, and its place is used when its turn comes. The caller holds the lock.
func (s *replayShard) put(e replayEntry) {
	if s.at == nil {
		s.at = make(map[[16]byte]int32)
	}
	if len(s.ring) < replaysByShard {
		s.at[e.key] = int32(len(s.ring))
		s.ring = append(s.ring, e)
		return
	}
	if old := s.ring[s.hand].key; s.at[old] == int32(s.hand) {
		delete(s.at, old)
	}
	s.at[e.key] = int32(s.hand)
	s.ring[s.hand] = e
	s.hand = (s.hand + 1) % replaysByShard
}

// lasts reports whether e is still remembered at now.
func (e *replayEntry) lasts(now time.Time) bool {
	return now.Unix()-e.since < int64(replayFor/time.Second)
}
