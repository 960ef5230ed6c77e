package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// deletedAtOnce bounds what one transaction deletes: etcd allows 128 operations.
const deletedAtOnce = 64

// A sealsTurn is what SealsKey holds, for people: what counts is its revision.
type sealsTurn struct {
	Newest string `json:"newest"` // id of the newest seal key
	Made   string `json:"made"`
}

// renew makes a new key beside the present ones, the first one too, and deletes in the same
// transaction those that are outlived. Of replicas that do so at once one succeeds: each
// new key moves SealsKey, and each is made only if that key is where it was when the present
// keys were read with it. A condition that there are no keys would not do for the first
// one: of those that are there none may be fit for use. It does nothing, without an error, if
// another replica was quicker: the watch brings that one's key. After an error it may have been made.
func (s *Seals) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stored, turn, err := s.stored(ctx)
	if err != nil {
		return fmt.Errorf("read the seal keys under %s to make another one: %w", SealsPrefix, err)
	}
	if known := ringOf(s.known).newest(); !known.same(stored.newest()) {
		return nil
	}
	now := s.Now()
	id, value, turned := newSeal(now)
	key := SealsPrefix + id
	ops := []clientv3.Op{clientv3.OpPut(key, value), clientv3.OpPut(SealsKey, turned)}
	gone := stored.outlived(now, s.KeepFor, s.RotateEvery)
	gone = gone[:min(len(gone), deletedAtOnce)]
	for _, e := range gone {
		ops = append(ops, clientv3.OpDelete(e.key))
	}
	r, err := txn(ctx, s.cluster, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(SealsKey), "=", turn),
		clientv3.Compare(clientv3.CreateRevision(key), "=", 0), // by chance it may be one of the present
	}, ops, nil)
	if err != nil {
		return fmt.Errorf("put a new seal key at %s and move %s: %w", key, SealsKey, err)
	}
	if r.Succeeded {
		s.Log.Info().Str("id", id).Int("deleted", len(gone)).Msg("made a new seal key")
	}
	return nil
}

// stored reads the keys as they are now, and the revision of SealsKey with them: 0 if it
// does not exist.
func (s *Seals) stored(ctx context.Context) (r ring, turn int64, err error) {
	got, err := txn(ctx, s.cluster, nil, []clientv3.Op{
		clientv3.OpGet(SealsKey, clientv3.WithKeysOnly()),
		clientv3.OpGet(SealsPrefix, clientv3.WithPrefix()),
	}, nil)
	if err != nil {
		return nil, 0, err
	}
	for _, kv := range got.Responses[0].GetResponseRange().GetKvs() {
		turn = kv.ModRevision
	}
	for _, kv := range got.Responses[1].GetResponseRange().GetKvs() {
		e, why := decodeSeal(kv)
		if why != "" {
			continue // the watch has told
		}
		if known := s.known[e.key]; known.same(e) {
			e.known = known.known
		}
		r = append(r, e)
	}
	r.sort()
	return r, turn, nil
}

// newSeal returns a random id, and what to store under it and under SealsKey.
func newSeal(now time.Time) (id, value, turned string) {
	id = randomID(4)
	var k SealKey
	_, _ = rand.Read(k.Key[:]) // never fails
	made := now.UTC().Format(time.RFC3339)
	return id, encodeSeal(sealRecord{Key: k.Key[:], Made: made}), encodeSeal(sealsTurn{Newest: id, Made: made})
}

func encodeSeal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("store: a seal key that JSON cannot express: " + err.Error())
	}
	return string(b)
}
