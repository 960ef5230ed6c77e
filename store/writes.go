package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// checkEvery is how often a replica finds out whether etcd takes writes.
const checkEvery = 5 * time.Second

// Writes finds out whether an etcd takes what a replica has to write: reads go on while
// its database is full, or while a permission is missing, and look healthy. It asks
// with a transaction that could write and never does, so that nothing is stored and no
// revision passes. Fields are set before Run and not changed after; Refusal may be
// called at any time.
type Writes struct {
	cluster *Cluster
	Log     zerolog.Logger
	Every   time.Duration // 5 s unless set

	mu      sync.Mutex
	refusal string // guarded by mu
}

// NewWrites returns what finds out about an etcd. It takes writes until it is known that
// it does not.
func NewWrites(cluster *Cluster) *Writes { return &Writes{cluster: cluster, Log: zerolog.Nop()} }

// Refusal returns what etcd says to a write, and to which keys; "" if it takes writes. An
// etcd that answers nothing leaves it as it was.
func (w *Writes) Refusal() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal
}

// Run asks at once and then every so often until ctx is done, and returns its error. It
// logs when the answer changes.
func (w *Writes) Run(ctx context.Context) error {
	for {
		w.look(ctx)
		if err := wait(ctx, jitter(or(w.Every, checkEvery))); err != nil {
			return err
		}
	}
}

func (w *Writes) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	refusal, err := "", CheckWrites(ctx, w.cluster)
	switch {
	case err == nil:
	case overloaded(err), isSilence(err) && !w.reads(ctx), ctx.Err() != nil:
		return // whether it takes writes is not known
	case isSilence(err):
		refusal = "reads are answered, a write is not: " + err.Error()
	default:
		refusal = err.Error()
	}
	w.mu.Lock()
	was := w.refusal
	w.refusal = refusal
	w.mu.Unlock()
	switch {
	case refusal != "" && was == "":
		w.Log.Error().Str("error", refusal).Msg("etcd takes no writes: what no running lease covers is decided by on_unavailable, " +
			"use is kept and reported once it takes them again, and no edit comes into force")
	case refusal == "" && was != "":
		w.Log.Info().Msg("etcd takes writes again")
	}
}

// reads reports whether etcd answers a read.
func (w *Writes) reads(ctx context.Context) bool {
	_, err := get(ctx, w.cluster, EpochKey, clientv3.WithKeysOnly())
	return err == nil
}

// CheckWrites asks an etcd whether it takes writes to the keys of replicas. Its error is
// what etcd says, and names the keys if some are refused and others are not. Nothing is
// written.
func CheckWrites(ctx context.Context, kv Doer) error {
	all := writtenKeys()
	err := checkWrites(ctx, kv, all...)
	if err == nil || !divides(err) {
		return err
	}
	for _, key := range all {
		if one := checkWrites(ctx, kv, key); one != nil {
			return fmt.Errorf("write %s: %w", key, one)
		}
	}
	return err
}

// Denied reports whether an error of etcd is about who asked: another user might get
// another answer.
func Denied(err error) bool {
	code := codeOf(err)
	return code == codes.PermissionDenied || code == codes.Unauthenticated
}

// checkWrites asks for all keys in one transaction. No version is below 0, so that
// nothing is put; etcd looks at what a transaction may put before it looks at the
// condition.
func checkWrites(ctx context.Context, kv Doer, keys ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	never := clientv3.Compare(clientv3.Version(EpochKey), "<", 0)
	puts := make([]clientv3.Op, 0, len(keys))
	for _, key := range keys {
		puts = append(puts, clientv3.OpPut(key, ""))
	}
	_, err := txn(ctx, kv, []clientv3.Cmp{never}, puts, nil)
	return err
}

// writtenKeys returns a key of each range that replicas write to.
func writtenKeys() []string {
	keys := []string{MinimumKey}
	for _, prefix := range []string{
		AccountsPrefix, usedPrefix, ReplicasPrefix, LiablePrefix, RecallsPrefix, JobsPrefix, LaterPrefix, TariffsPrefix, SealsPrefix,
		EffectivePrefix, StatusPrefix,
	} {
		keys = append(keys, prefix+"check")
	}
	return keys
}
