package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/meteproject/mete/store"
)

// C158: a database that is full is told of by the probe, the metric, the status and the
// log, and so is that it has space again.
func TestServe_C158_EtcdTakesNoWrites(t *testing.T) {
	t.Parallel()
	r := start(t, "--etcd-listen=127.0.0.1:0")
	a := r.addresses(t)
	told := func(probe, metric, refusal string) {
		t.Helper()
		eventually(t, probe, func() bool {
			_, body := get(t, "http://"+a.Metrics+"/readyz?verbose")
			return strings.Contains(body, probe+"\n") && strings.HasSuffix(body, "\nready\n")
		})
		if _, body := get(t, "http://"+a.Metrics+"/metrics"); !strings.Contains(body, metric+"\n") {
			t.Errorf("the metrics have no %s", metric)
		}
		var s status
		if _, body := get(t, "http://"+a.Admin+"/v1/status"); json.Unmarshal([]byte(body), &s) != nil || s.Refusal != refusal || !s.StoreUp {
			t.Errorf("status %s, want %q", body, refusal)
		}
	}
	const full = "etcdserver: mvcc: database space exceeded"
	told("[ok] etcd takes writes", "mete_store_writable 1", "")
	alarm(t, a.Etcd, etcdserverpb.AlarmRequest_ACTIVATE)
	told("[degraded] etcd takes writes: "+full, "mete_store_writable 0", full)
	alarm(t, a.Etcd, etcdserverpb.AlarmRequest_DEACTIVATE)
	told("[ok] etcd takes writes", "mete_store_writable 1", "")
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
	log := r.log.String()
	if strings.Count(log, "etcd takes no writes") != 1 || strings.Count(log, "etcd takes writes again") != 1 || !strings.Contains(log, full) {
		t.Errorf("logged:\n%s", log)
	}
}

// alarm raises, or ends, the alarm that an etcd raises when its database is full.
func alarm(t *testing.T, endpoint string, action etcdserverpb.AlarmRequest_AlarmAction) {
	t.Helper()
	c, err := store.Connect(store.Config{Endpoints: []string{endpoint}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Get(ctx, "k"); err != nil { // there is a connection now
		t.Fatal(err)
	}
	_, err = etcdserverpb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
}
