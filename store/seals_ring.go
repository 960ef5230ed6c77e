package store

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A sealRecord is what is stored under a seal key's id.
type sealRecord struct {
	Key  []byte `json:"key"`
	Made string `json:"made"` // RFC 3339, by the clock of who made it
}

// A sealEntry is a seal key as it is stored, and as this process knows it.
type sealEntry struct {
	SealKey
	key   string    // in etcd
	put   int64     // its revision
	made  time.Time // by the clock of who made it; zero: it cannot be read
	known time.Time // since when this process knows it; zero: it does not
}

// decodeSeal reads a stored key, or tells why it cannot: in words of its own, since those
// of a decoder may quote the secret.
func decodeSeal(kv *mvccpb.KeyValue) (e sealEntry, why string) {
	const digits = 8
	e = sealEntry{key: string(kv.Key), put: kv.ModRevision}
	id, _ := strings.CutPrefix(e.key, SealsPrefix)
	n, err := strconv.ParseUint(id, 16, 32)
	if err != nil || len(id) != digits || !isLowerHex(id) {
		return sealEntry{}, "its id is not 8 lower-case hex digits"
	}
	e.ID = uint32(n)
	var r sealRecord
	if json.Unmarshal(kv.Value, &r) != nil {
		return sealEntry{}, "its value is not JSON with a field key in base64"
	}
	if copy(e.Key[:], r.Key) != len(r.Key) || len(r.Key) != len(e.Key) {
		return sealEntry{}, "its key is not 16 bytes long"
	}
	e.made, _ = time.Parse(time.RFC3339, r.Made) // zero: it is told by nothing then
	return e, ""
}

// same reports whether e and other are one and the same, not one that was put again.
func (e sealEntry) same(other sealEntry) bool {
	return e.SealKey == other.SealKey && e.put == other.put
}

// age returns how old a key is, as far as anybody can tell: this process has known it for
// so long by its monotonic clock, or, which survives a restart and goes on while a machine
// sleeps, it was made so long ago if its maker's clock agrees with ours.
func (e sealEntry) age(now time.Time) time.Duration {
	var age time.Duration
	if !e.known.IsZero() {
		age = now.Sub(e.known)
	}
	if !e.made.IsZero() {
		age = max(age, now.Sub(e.made))
	}
	return age
}

// A ring is seal keys, oldest first.
type ring []sealEntry

func ringOf(entries map[string]sealEntry) ring {
	r := make(ring, 0, len(entries))
	for _, e := range entries {
		r = append(r, e)
	}
	r.sort()
	return r
}

func (r ring) sort() {
	slices.SortFunc(r, func(a, b sealEntry) int {
		return cmp.Or(cmp.Compare(a.put, b.put), cmp.Compare(a.ID, b.ID))
	})
}

func (r ring) keys() []SealKey {
	keys := make([]SealKey, 0, len(r))
	for _, e := range r {
		keys = append(keys, e.SealKey)
	}
	return keys
}

// newest returns the key that was made last; the zero entry if there is none.
func (r ring) newest() sealEntry {
	if len(r) == 0 {
		return sealEntry{}
	}
	return r[len(r)-1]
}

// sign returns the newest key that this process has known for so long that everybody
// has heard of it. A process that has just begun knows none for so long: then it is the
// second newest, for the newest may have been made this moment. Still older ones may be
// about to be deleted. r is not empty.
func (r ring) sign(now time.Time, after time.Duration) SealKey {
	for _, e := range slices.Backward(r) {
		if now.Sub(e.known) >= after {
			return e.SealKey
		}
	}
	return r[max(0, len(r)-2)].SealKey
}

// outlived returns the keys of r that no token needs any more once another one is added.
// Nobody signs with a key from when there are two newer ones, see sign: it goes when the
// older of these is older than keep. A clock that is wrong makes all look old, and has
// keys made twice as often, see due: so twice as many stay as are made in that time.
func (r ring) outlived(now time.Time, keep, every time.Duration) ring {
	rotations := max(1, int((keep+every-1)/every))
	var gone ring
	for i := 0; len(r)-i >= 2+2*rotations; i++ {
		if r[i+2].age(now) > keep {
			gone = append(gone, r[i])
		}
	}
	return gone
}
