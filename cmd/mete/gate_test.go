package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// TestGate_S25_S26: a mete that is older than the store needs does not start and leaves
// nothing behind; one that runs when the minimum rises goes on answering.
func TestGate_S25_S26_TooOldForTheStore(t *testing.T) {
	defer goleak.VerifyNone(t)
	first := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := first.addresses(t)
	etcd, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	putDocuments(t, etcd)
	conn := connect(t, a.GRPC)
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:acme") })
	// A replica that raised it before would have waited for this replica to go.
	eventually(t, "the second look", func() bool { return strings.Contains(first.log.String(), "new enough for the store\"") })
	if _, err := etcd.Put(t.Context(), store.MinimumKey, fmt.Sprintf(`{"feature_level": %d, "version": "v9.0.0"}`, plan.FeatureLevel+1)); err != nil {
		t.Fatal(err)
	}
	var s status
	eventually(t, "news of the minimum", func() bool {
		_, body := get(t, "http://"+a.Admin+"/v1/status")
		return json.Unmarshal([]byte(body), &s) == nil && s.Behind
	})
	if s.Minimum != plan.FeatureLevel+1 || s.Level != plan.FeatureLevel || !s.Ready {
		t.Errorf("status %+v", s)
	}
	code, body := get(t, "http://"+a.Metrics+"/readyz?verbose")
	if code != 200 || !strings.Contains(body, "[degraded] new enough for the store\n") || !admits(t, conn, "org:acme") {
		t.Errorf("readyz %d, %s", code, body)
	}
	if n := strings.Count(first.log.String(), "upgrade it"); n != 1 {
		t.Errorf("told %d times:\n%s", n, first.log)
	}

	code, words := startAsProcess(t, "--etcd-endpoints=http://"+a.Etcd, "--drain-delay=1h")
	want := fmt.Sprintf("mete: version gate: this mete (version devel) has feature level %d and the store needs feature level %d (version v9.0.0 has it): run that version or a newer one",
		plan.FeatureLevel, plan.FeatureLevel+1)
	if code != 1 || !strings.Contains(words, want) {
		t.Errorf("exit code %d, %s", code, words)
	}
	keys, err := etcd.Get(t.Context(), store.ReplicasPrefix, clientv3.WithPrefix())
	if err != nil || len(keys.Kvs) != 1 {
		t.Errorf("presences: %v, %v", keys, err)
	}
	_, _ = conn.Close(), etcd.Close()
	if err := first.stop(t); err != nil {
		t.Errorf("%v\n%s", err, first.log)
	}
}

// startAsProcess runs mete serve to its end, which comes by itself.
func startAsProcess(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"serve"}, anyPort(filepath.Join(t.TempDir(), "data"), args...)...)...)
	cmd.Env = append(os.Environ(), asMete+"=1")
	var words bytes.Buffer
	cmd.Stderr = &words
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), words.String()
}

// A scripted store answers one read after another.
type scripted chan func() (clientv3.OpResponse, error)

func (s scripted) Do(ctx context.Context, _ clientv3.Op) (clientv3.OpResponse, error) {
	select {
	case answer := <-s:
		return answer()
	case <-ctx.Done():
		return clientv3.OpResponse{}, ctx.Err()
	}
}

func minimumOf(level int) func() (clientv3.OpResponse, error) {
	return func() (clientv3.OpResponse, error) {
		r := &clientv3.GetResponse{}
		if level > 0 {
			r.Kvs = []*mvccpb.KeyValue{{Value: fmt.Appendf(nil, `{"feature_level": %d}`, level), ModRevision: 1}}
		}
		return r.OpResponse(), nil
	}
}

// S25: the minimum is read once more when the presence is there: a replica that raised it
// before could not see this replica.
func TestGate_S25_LooksAgainOnceItIsRegistered(t *testing.T) {
	t.Parallel()
	answers := scripted(make(chan func() (clientv3.OpResponse, error)))
	registered := make(chan bool)
	g := &gate{
		level: 2, version: "v1.0.0", kv: answers, log: zerolog.Nop(), looked: make(chan struct{}),
		registered: func() bool { return <-registered },
	}
	members := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- g.run(t.Context()) }()
	go func() {
		_ = g.after(func(context.Context) error { close(members); return nil })(t.Context())
	}()
	reply := func(answer func() (clientv3.OpResponse, error)) {
		t.Helper()
		select {
		case answers <- answer:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody reads the minimum")
		}
	}
	reply(func() (clientv3.OpResponse, error) { return clientv3.OpResponse{}, errors.New("etcd is away") })
	if g.open() {
		t.Error("open before the store has answered")
	}
	reply(minimumOf(0))
	<-members
	registered <- false
	registered <- true
	if !g.open() {
		t.Error("closed though the store needs nothing")
	}
	reply(minimumOf(3))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "feature level 2 and the store needs feature level 3") {
		t.Errorf("ended with %v", err)
	}
}

// S25: the same level is enough, and a minimum that cannot be read is not.
func TestGate_S25_WhatIsEnough(t *testing.T) {
	t.Parallel()
	for level, enough := range map[int]bool{0: true, 1: true, 2: true, 3: false, -1: false} {
		answers := scripted(make(chan func() (clientv3.OpResponse, error), 1))
		answers <- minimumOf(level)
		if level < 0 {
			<-answers
			answers <- func() (clientv3.OpResponse, error) {
				return (&clientv3.GetResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte("three"), ModRevision: 1}}}).OpResponse(), nil
			}
		}
		g := &gate{level: 2, kv: answers, log: zerolog.Nop()}
		if err := g.look(t.Context()); (err == nil) != enough {
			t.Errorf("minimum %d: %v", level, err)
		}
	}
}
