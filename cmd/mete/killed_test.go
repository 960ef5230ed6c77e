package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/journal"
	"github.com/meteproject/mete/store/storetest"
)

// leftPage is a page as a process leaves it that has taken 9 numbers and settled 2.
func leftPage(process uint64) *authz.Page {
	const words = journal.PageNumbers / 64
	p := &authz.Page{
		PageName: authz.PageName{Process: process, Began: fixedNow(), Own: true}, Taken: new(atomic.Int64), Left: new(atomic.Int64),
		Settled: make([]uint64, words), Reported: make([]uint64, words), Free: func() {},
	}
	p.Taken.Store(9)
	p.Settled[0] = 1<<3 | 1<<4
	return p
}

// Issue 12, D4: what a killed process has left unsettled counts as missing a minute after
// the replica is ready, and what one has left that ended in order after a day.
func TestMissing_A26_AMinuteAfterTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &buffer{}
		ordered := leftPage(8)
		ordered.Left.Store(1)
		m := &mete{log: zerolog.New(log), settling: make(chan struct{})}
		m.decider = authz.New(authz.Config{
			Keeper: quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1"), Now: time.Now,
			Process: 10, Before: []*authz.Page{leftPage(7), ordered},
		})
		go func() { _ = m.missKilled(t.Context()) }()
		must := func(after time.Duration, unsettled, missing int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if s := m.decider.Stats(); s.Unsettled != unsettled || s.Missing != missing {
				t.Errorf("%d unsettled, %d missing; want %d, %d", s.Unsettled, s.Missing, unsettled, missing)
			}
		}
		must(time.Hour, 14, 0) // it is not ready
		close(m.settling)
		must(59*time.Second, 14, 0)
		must(time.Second, 7, 7)
		must(24*time.Hour-2*time.Minute, 7, 7)
		must(time.Minute, 0, 14)
		for _, want := range []string{"a killed process has left reservations unsettled", "are missing: no word", `"reservations":7`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %s:\n%s", want, log)
			}
		}
	})
}

// A killable is a mete in a process of its own.
type killable struct {
	*edge
	cmd *exec.Cmd
	log *buffer
}

// startKillable starts a process in a directory, where an earlier one may have run.
func startKillable(t *testing.T, dir string) *killable {
	t.Helper()
	if err := removeAddresses(dir); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	k := &killable{edge: &edge{}, log: &buffer{}}
	k.cmd = exec.CommandContext(t.Context(), os.Args[0], append([]string{"serve"}, anyPort(dir, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")...)...)
	k.cmd.Env = append(os.Environ(), asMete+"=1")
	k.cmd.Stderr = k.log
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.a = (&running{dir: dir}).addresses(t)
	k.conn = connect(t, k.a.GRPC)
	etcd, err := store.Connect(store.Config{Endpoints: []string{k.a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	k.etcd = etcd
	return k
}

// kill ends the process as kill -9 does.
func (k *killable) kill(t *testing.T) {
	t.Helper()
	_, _ = k.conn.Close(), k.etcd.Close()
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = k.cmd.Wait()
}

// A mete that is started again after kill -9 tells what is not settled; after a stop in
// order, too, which is no reason to warn.
func TestMissing_A26_AfterKill9(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	k := startKillable(t, dir)
	putDocuments(t, k.etcd)
	settled, open := k.sealed(t), k.sealed(t)
	k.sealed(t)
	k.logs(t, settled, 500)
	k.says(t, `mete_settlements_total{result="free"} 1`)
	k.kill(t)

	k = startKillable(t, dir)
	k.says(t, "mete_reservations_unsettled 2")
	eventually(t, "word of two reservations", func() bool { return strings.Contains(k.log.String(), `"reservations":2`) })
	k.logs(t, open, 200)
	k.says(t, "mete_reservations_unsettled 1")
	k.says(t, "mete_reservations_missing_total 0")
	k.kill(t)
}
