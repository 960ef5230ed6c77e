package e2e_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// unchanged is a world's edit that changes nothing: it leaves out the second Envoy.
func unchanged(config string) string { return config }

// newReplica starts a replica on the etcd of first, with an Envoy and an API of its
// own. Args go to mete.
func newReplica(t *testing.T, first *world, args ...string) *world {
	t.Helper()
	w := newWorld(t, append([]string{"--etcd-endpoints", "http://" + first.mete.Etcd}, args...), unchanged)
	w.etcd = first.etcd
	t.Cleanup(func() { w.etcd = nil }) // it is first's to close
	return w
}

// on returns a as callers of another replica see it, once a is in force there.
func (a *app) on(t *testing.T, w *world) *app {
	t.Helper()
	b := *a
	b.world = w
	b.await(t)
	return &b
}

// account returns the tenant's account, of a plan with one quota; an empty one if
// nothing was used.
func (a *app) account(t *testing.T) quota.Account {
	t.Helper()
	all, err := store.NewAccounts(a.etcd).List(t.Context(), a.tenant)
	if err != nil {
		t.Fatal(err)
	}
	switch len(all) {
	case 0:
		return quota.Account{}
	case 1:
		return all[0].Account
	}
	t.Fatalf("%s has %d accounts, want one", a.tenant, len(all))
	return quota.Account{}
}

// metric reads one series of mete's metrics; -1 if it is not there.
func (w *world) metric(t *testing.T, series string) int {
	t.Helper()
	status, text := w.page(t, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("metrics: %d %s", status, text)
	}
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, series+" ")
		if n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); found && err == nil {
			return int(n)
		}
	}
	return -1
}

// metectl runs a command on the world's etcd and returns what it says and its exit
// code.
func (w *world) metectl(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--endpoints", w.etcd.Endpoints()[0])
	text, err := exec.CommandContext(t.Context(), filepath.Join(dir, "metectl"), args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(text), code
}

// usage is what metectl shows of the tenant's only limit; what running requests have
// reserved is part of what is used.
func (a *app) usage(t *testing.T) (used, leased int64) {
	t.Helper()
	text, code := a.metectl(t, "usage", a.tenant, "-o", "json")
	var report struct {
		Limits []struct{ Used, Reserved, Leased *int64 }
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil || code != 0 || len(report.Limits) != 1 ||
		report.Limits[0].Used == nil || report.Limits[0].Reserved == nil || report.Limits[0].Leased == nil {
		t.Fatalf("metectl usage: exit code %d, %v: %s", code, err, text)
	}
	return *report.Limits[0].Used + *report.Limits[0].Reserved, *report.Limits[0].Leased
}
