package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// An etcd that is away.
type away struct{}

var errAway = errors.New("away")

func (away) Do(context.Context, clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, errAway
}

// What descriptors have read from a request is in no error, and so in no log; the rest of
// the key is.
func TestAccounts_C027_ErrorsHoldNoValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, shown, hidden string }{
		{"edge?api_key=mk_secret", "edge?", "mk_secret"},
		{"org:acme", "org:acme", "mk_secret"},
	} {
		k := quota.Key{Root: tt.key, Tenant: tt.key, Limit: "ratelimit:per_hour", Window: "hour@2026-11-30T10:00Z"}
		if tt.key == "org:acme" {
			k.Limit = "monthly"
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := store.NewAccounts(away{}).Apply(ctx, quota.Operation{Key: k, Holder: "h", Seq: 1})
		if err == nil || !strings.Contains(err.Error(), tt.shown) || strings.Contains(err.Error(), tt.hidden) {
			t.Errorf("%v", err)
		}
	}
}
