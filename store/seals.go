package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// How long seal keys live. A token lives for KeepFor at least, since a request may run
// for long.
const (
	rotateSeals = 24 * time.Hour
	keepSeals   = 72 * time.Hour
	// signAfter is longer than a watch takes to bring a key to all who are not cut off.
	signAfter = 10 * time.Second
	// leastSealLife is how long a replica must itself have known the newest key before
	// it makes another one: clocks that are wrong make no more than one a minute in all.
	leastSealLife = time.Minute
)

// A SealKey is a secret that all replicas share: reservations are sealed with it. It
// formats as its id alone.
type SealKey struct {
	ID  uint32
	Key [16]byte
}

// Format implements [fmt.Formatter], for all verbs: the secret must not get into logs.
func (k SealKey) Format(w fmt.State, _ rune) { _, _ = fmt.Fprintf(w, "seal key %08x", k.ID) }

// MarshalText implements [encoding.TextMarshaler], for the same reason.
func (k SealKey) MarshalText() ([]byte, error) { return fmt.Append(nil, k), nil }

// Seals keeps the seal keys that replicas share: it makes the first one, follows all,
// and replaces the newest in time, in turn with the other replicas. Fields are set before
// Run and not changed after.
type Seals struct {
	cluster *Cluster

	// Now is the local clock; its monotonic part is used where it has one.
	Now func() time.Time
	Log zerolog.Logger
	// OnKeys is called by Run, one call at a time, first once there is a key and then
	// with each change: all that tokens may be sealed with, oldest first, and the one
	// of them to sign with. all is never empty and is the callee's. While etcd has no key, or
	// is away, the last word holds.
	OnKeys func(sign SealKey, all []SealKey)
	// RotateEvery is how old the newest key becomes, up to a fifth more, before another
	// one is made, 24 h if not set. KeepFor is how long after the last replica signed
	// with a key it stays at least, 72 h if not set.
	RotateEvery, KeepFor time.Duration
	// SignAfter is how long a replica knows a key before it signs with it, 10 s if not
	// set: every other one has heard of it when the first token comes back.
	SignAfter time.Duration

	// Progress and Silence replace 5 s, which is how often it looks what is due, and 15 s
	// in tests.
	Progress, Silence time.Duration

	// Owned by Run.
	epoch   string
	known   map[string]sealEntry // by key in etcd
	bad     map[string]int64     // revisions of what cannot be read and was logged, by key
	life    time.Duration        // of a newest key: RotateEvery with this replica's jitter
	renewed time.Time            // last try to replace the newest key
	sign    SealKey              // that OnKeys was called with
	told    []SealKey            // that OnKeys was called with
}

// NewSeals returns the seal keys of an etcd.
func NewSeals(cluster *Cluster) *Seals {
	return &Seals{
		cluster: cluster, Log: zerolog.Nop(),
		Now:         time.Now, //nolint:forbidigo // the default of an edge
		RotateEvery: rotateSeals, KeepFor: keepSeals, SignAfter: signAfter,
		known: map[string]sealEntry{}, bad: map[string]int64{},
	}
}

// Run follows and replaces the keys until ctx is done, and returns its error. Etcd being
// away, at the start too, is waited out. It is called once.
func (s *Seals) Run(ctx context.Context) error {
	s.life = 2*s.RotateEvery - jitter(s.RotateEvery)
	w := watcher{
		cluster: s.cluster, log: s.Log, name: "seals", progress: s.Progress, silence: s.Silence,
		spans: []span{prefixSpan(SealsPrefix), {EpochKey, EpochKey + "\x00"}},
		// Between batches of a watch that works only: what a replica that is cut off
		// has known for long, the others may have replaced.
		tick: func() { s.look(ctx) },
	}
	w.run(ctx, func(b batch) error { return s.handle(ctx, b) })
	return ctx.Err()
}

// handle takes over what a batch tells.
func (s *Seals) handle(ctx context.Context, b batch) error {
	was := s.epoch
	s.epoch = epochIn(b, was)
	if was != "" && s.epoch != was && !b.full {
		return fmt.Errorf("%s has changed: %w", EpochKey, errOtherStore)
	}
	s.take(b)
	if len(s.known) == 0 {
		// Without any key nothing can be sealed: an error has all read again, soon.
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	s.tell()
	return nil
}

// take notes which keys there are, and since when they are known.
func (s *Seals) take(b batch) {
	known, bad := s.known, s.bad
	if b.full {
		s.known, s.bad = map[string]sealEntry{}, map[string]int64{}
	}
	for _, c := range b.changes {
		if c.key == EpochKey {
			continue
		}
		old, told := known[c.key], bad[c.key]
		delete(s.known, c.key)
		delete(s.bad, c.key)
		if c.deleted() {
			continue
		}
		e, why := decodeSeal(c.kv)
		if why != "" {
			s.bad[c.key] = c.revision
			s.complain(c, told, why)
			continue
		}
		e.known = s.Now()
		if old.same(e) {
			e.known = old.known
		}
		s.known[c.key] = e
	}
}

// complain logs a value that cannot be read, once; never the value.
func (s *Seals) complain(c change, told int64, why string) {
	if told != c.revision {
		s.Log.Error().Str("key", c.key).Str("reason", why).
			Msg("what is stored there is no seal key and is ignored; delete it unless a newer version has put it")
	}
}

// look sees to what is due by the clock alone.
func (s *Seals) look(ctx context.Context) {
	if now := s.Now(); s.due(now) {
		s.renewed = now
		if err := s.renew(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn().Err(err).Msg("the newest seal key is not replaced; the present ones go on, and it is tried again in a minute")
		}
	}
	s.tell()
}

// due reports whether it is time to replace the newest key. Where there is none, the last
// try has lost to another replica, or its key was deleted since.
func (s *Seals) due(now time.Time) bool {
	r := ringOf(s.known)
	if len(r) == 0 {
		return true
	}
	newest := r[len(r)-1]
	tried := !s.renewed.IsZero() && now.Sub(s.renewed) < leastSealLife
	return !tried && now.Sub(newest.known) >= leastSealLife && newest.age(now) >= s.life
}

// tell calls OnKeys if there is anything new.
func (s *Seals) tell() {
	r := ringOf(s.known)
	if len(r) == 0 {
		return
	}
	sign, all := r.sign(s.Now(), s.SignAfter), r.keys()
	if sign == s.sign && slices.Equal(all, s.told) {
		return
	}
	s.sign, s.told = sign, all
	if s.OnKeys != nil {
		s.OnKeys(sign, slices.Clone(all))
	}
}
