package main

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
	"github.com/meteproject/mete/store/storetest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"metectl": main})
}

// TestScripts_P22_P53_P71_S27 runs testdata/*.txtar, each against an etcd of its own. Run with
// UPDATE=1 to rewrite what the scripts expect.
func TestScripts_P22_P53_P71_S27(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			s, err := embedded.Start(context.Background(), embedded.Config{
				Dir: filepath.Join(e.WorkDir, ".etcd"), ClientURL: "127.0.0.1:0", Log: zerolog.Nop(),
			})
			if err != nil {
				return err
			}
			e.Defer(s.Close)
			e.Values["server"] = s
			e.Setenv("METECTL_ENDPOINTS", s.Endpoint())
			e.Setenv("STORE", s.Endpoint())
			// Under the race detector each metectl would sleep for a second as it ends.
			e.Setenv("GORACE", "atexit_sleep_ms=10")
			data := filepath.Join(e.WorkDir, "data")
			if err := os.Mkdir(data, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(data, "addresses.json"), []byte(`{"etcd": "`+s.Endpoint()+`"}`), 0o644)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit":    exitCommand,
			"replica": replicaCommand,
			"put":     putCommand,
			"drop":    dropCommand,
			"use":     useCommand,
			"count":   countCommand,
			"voided":  voidedCommand,
			"auth":    authCommand,
			"roles":   rolesCommand,
			"seals":   sealsCommand,
			"full":    fullCommand,
			"silent":  silentCommand,
			"swap":    swapCommand,
			"nokey":   noKeyCommand,

			"waitkey":      waitKeyCommand,
			"waitfile":     waitFileCommand,
			"waitrejected": func(ts *testscript.TestScript, _ bool, _ []string) { waitStatuses(ts, 1) },
			"waitaccepted": func(ts *testscript.TestScript, _ bool, _ []string) { waitStatuses(ts, 0) },
		},
	})
}

// exitCommand runs a command and checks its exit code: exit 3 metectl ...
func exitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d; want %d", got, want)
	}
}

func serverOf(ts *testscript.TestScript) *embedded.Server {
	s, ok := ts.Value("server").(*embedded.Server)
	if !ok {
		ts.Fatalf("this script has no etcd")
	}
	return s
}

// replicaCommand runs the documents and the membership of a replica until the
// script ends.
func replicaCommand(ts *testscript.TestScript, _ bool, _ []string) {
	client := serverOf(ts).Client()
	ctx, cancel := context.WithCancel(context.Background())
	members := store.NewMembers(store.ClusterOf(client), "r1")
	members.Presence = store.Presence{Address: "127.0.0.1:9001", Version: "devel", Feature: plan.FeatureLevel, Zones: plan.ZonesVersion()}
	ready := make(chan struct{})
	var once sync.Once
	documents := store.NewDocuments(store.ClusterOf(client))
	documents.OnSnapshot = func(*plan.Snapshot) { once.Do(func() { close(ready) }) }
	var wg sync.WaitGroup
	wg.Go(func() { _ = documents.Run(ctx) })
	wg.Go(func() { _ = members.Run(ctx) })
	ts.Defer(func() { cancel(); wg.Wait() })
	<-ready
	for deadline := time.Now().Add(5 * time.Second); len(members.Replicas()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("the replica did not register")
		}
	}
}

// putCommand writes a file to a key as etcdctl would: put KEY FILE.
func putCommand(ts *testscript.TestScript, _ bool, args []string) {
	_, err := serverOf(ts).Client().Put(context.Background(), args[0], ts.ReadFile(args[1]))
	ts.Check(err)
}

// dropCommand deletes a key as etcdctl would: drop KEY.
func dropCommand(ts *testscript.TestScript, _ bool, args []string) {
	_, err := serverOf(ts).Client().Delete(context.Background(), args[0])
	ts.Check(err)
}

// useCommand records usage of a month in UTC: use ROOT TENANT LIMIT UNITS.
func useCommand(ts *testscript.TestScript, _ bool, args []string) {
	used, err := strconv.ParseInt(args[3], 10, 64)
	ts.Check(err)
	_, err = serverOf(ts).Client().Put(context.Background(), store.LiablePrefix+"r1", "") // a holder that runs
	ts.Check(err)
	w := quota.Calendar{Kind: quota.Month}.Window(quota.EndOfMinute(time.Now()))
	_, err = store.NewAccounts(serverOf(ts).Client()).Apply(context.Background(), quota.Operation{
		Key: quota.Key{Root: args[0], Tenant: args[1], Limit: args[2], Window: w.ID},
		App: "api", Holder: "r1", Seq: 1, Used: used, Ceiling: quota.MaxUnits, Replicas: 1,
	})
	ts.Check(err)
}

// silentCommand sets $SILENT to an address that takes connections and says nothing.
func silentCommand(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("SILENT", l.Addr().String())
}

// secretHash is bcrypt of "secret" at its least cost: at etcd's own a login takes
// seconds under the race detector.
const secretHash = "$2a$04$w5vjUAs0D6OiX2JXTvqFFuiPO7q3IaQDWkLOJ4V1tUpID4wBVRLxe"

// fullCommand makes etcd take no writes, as when its database is full, and with ! as many
// as before again.
func fullCommand(ts *testscript.TestScript, over bool, _ []string) {
	dialed, err := store.Connect(store.Config{Endpoints: []string{serverOf(ts).Endpoint()}, Log: zerolog.Nop()})
	ts.Check(err)
	defer func() { _ = dialed.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = dialed.Get(ctx, "k") // there is a connection now
	ts.Check(err)
	r := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: 1}
	if over {
		r.Action = etcdserverpb.AlarmRequest_DEACTIVATE
	}
	_, err = etcdserverpb.NewMaintenanceClient(dialed.ActiveConnection()).Alarm(ctx, r)
	ts.Check(err)
}

// authCommand turns on permissions, with the user root:secret.
func authCommand(ts *testscript.TestScript, _ bool, _ []string) {
	ctx, client := context.Background(), serverOf(ts).Client()
	_, err := client.UserAdd(ctx, "root", "another")
	ts.Check(err)
	dialed, err := clientv3.New(clientv3.Config{Endpoints: []string{serverOf(ts).Endpoint()}, Logger: zap.NewNop()})
	ts.Check(err)
	defer func() { ts.Check(dialed.Close()) }()
	_, err = etcdserverpb.NewAuthClient(dialed.ActiveConnection()).UserChangePassword(ctx, &etcdserverpb.AuthUserChangePasswordRequest{
		Name: "root", HashedPassword: base64.StdEncoding.EncodeToString([]byte(secretHash)),
	})
	ts.Check(err)
	_, err = client.UserGrantRole(ctx, "root", "root")
	ts.Check(err)
	_, err = client.AuthEnable(ctx)
	ts.Check(err)
}

// rolesCommand turns on permissions, with the roles of docs/etcd-access.md and a user of each.
func rolesCommand(ts *testscript.TestScript, _ bool, _ []string) {
	_, err := serverOf(ts).Client().Put(context.Background(), store.SealsPrefix+"00000001", "secret")
	ts.Check(err)
	c := dialedAs(ts, "")
	defer func() { ts.Check(c.Close()) }()
	ts.Check(storetest.Roles(context.Background(), c, filepath.Join("..", "..", "docs", "etcd-access.md")))
}

// sealsCommand checks that a user may not read the seals, alone or with all the rest.
func sealsCommand(ts *testscript.TestScript, _ bool, args []string) {
	c := dialedAs(ts, args[0])
	defer func() { ts.Check(c.Close()) }()
	for _, prefix := range []string{store.SealsPrefix, store.Prefix} {
		if _, err := c.Get(context.Background(), prefix, clientv3.WithPrefix()); !store.Denied(err) {
			ts.Fatalf("%s reads %s: %v", args[0], prefix, err)
		}
	}
}

func dialedAs(ts *testscript.TestScript, user string) *clientv3.Client {
	cfg := store.Config{Endpoints: []string{serverOf(ts).Endpoint()}, Log: zerolog.Nop()}
	if user != "" {
		cfg.User, cfg.Password = user, storetest.Password
	}
	c, err := store.Connect(cfg)
	ts.Check(err)
	return c
}

// waitStatuses waits until replicas reject n documents.
func waitStatuses(ts *testscript.TestScript, n int) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all, err := store.Statuses(context.Background(), serverOf(ts).Client())
		ts.Check(err)
		if len(all) == n {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%d documents are rejected; want %d", len(all), n)
		}
	}
}
