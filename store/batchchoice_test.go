package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// versioned is an etcd of some version.
type versioned struct {
	clientv3.Maintenance
	version string
}

func (v versioned) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return (*clientv3.StatusResponse)(&etcdserverpb.StatusResponse{Version: v.version}), nil
}

// Operations travel in batches once every endpoint says that it can take them.
func TestCheckBatching_A34_AllEndpointsMustBeNewEnough(t *testing.T) {
	t.Parallel()
	connect := func(endpoint, version string) *clientv3.Client {
		c, err := store.Connect(store.Config{Endpoints: []string{endpoint}, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if version != "" {
			c.Maintenance = versioned{version: version}
		}
		return c
	}
	here, silent := server.Endpoint(), "127.0.0.1:1"
	for _, c := range []struct {
		name    string
		clients []*clientv3.Client
		want    store.Batching
		fails   bool
	}{
		{"in this process", []*clientv3.Client{server.Client()}, store.Nested, false},
		{"new", []*clientv3.Client{connect(here, "")}, store.Nested, false},
		{"at least", []*clientv3.Client{connect(here, "3.5.33"), connect(here, "3.6.14")}, store.Nested, false},
		{"one is old", []*clientv3.Client{connect(here, ""), connect(here, "3.6.13")}, store.Single, false},
		{"one is silent", []*clientv3.Client{connect(silent, ""), connect(here, "")}, store.Single, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			patience := time.Minute
			if c.fails {
				patience = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, err := store.CheckBatching(ctx, zerolog.Nop(), c.clients...)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// Until somebody knows better operations travel singly.
func TestAccounts_A34_TravelSinglyAtFirst(t *testing.T) {
	t.Parallel()
	accounts := store.NewAccounts(server.Client())
	if got := accounts.Batching(); got != store.Single || got.String() != "single" {
		t.Errorf("operations travel %v", got)
	}
	accounts.SetBatching(store.Nested)
	if got := accounts.Batching(); got != store.Nested || got.String() != "nested" {
		t.Errorf("operations travel %v", got)
	}
}
