package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// A usage is what a tenant has used of its quota, and what replicas hold of it.
type usage struct{ used, leased int64 }

// readUsage reads the account of each cell, and has metectl show those that show says.
func (s *stage) readUsage(ctx context.Context, cells []*cell, show func(*cell) bool) error {
	// Documents that metectl would read each time, and that matter no more.
	for _, prefix := range []string{"/mete/v1/credentials/", "/mete/v1/tenants/aborted:", "/mete/v1/tenants/completed:"} {
		if _, err := s.etcd.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
			return err
		}
	}
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for _, c := range cells {
		g.Go(func() error {
			var err error
			if c.account, err = s.account(ctx, c.tenant()); err == nil && show(c) {
				c.shown, err = s.usage(ctx, c.tenant())
			}
			if err == nil {
				_, err = s.etcd.Delete(ctx, "/mete/v1/tenants/"+c.tenant()) // metectl reads them all, each time
			}
			return err
		})
	}
	return g.Wait()
}

// account is what the store has of a tenant's only quota.
func (s *stage) account(ctx context.Context, tenant string) (usage, error) {
	all, err := store.NewAccounts(s.etcd).List(ctx, tenant)
	switch {
	case err != nil:
		return usage{}, err
	case len(all) > 1:
		return usage{}, fmt.Errorf("%s has %d accounts, want one", tenant, len(all))
	case len(all) == 0:
		return usage{}, nil // nothing was ever used
	}
	return usage{all[0].Account.Used(), all[0].Account.Leased()}, nil
}

// lightMetectl is a metectl without the race detector, which costs each run a second and
// most of its speed: the matrix has hundreds of them.
var lightMetectl = sync.OnceValues(func() (string, error) {
	bin, err := binaries()
	if err != nil || !raceBuild {
		return filepath.Join(bin, "metectl"), err
	}
	root, err := envoy.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(bin, "light", "metectl")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/metectl")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build metectl: %w: %s", err, out)
	}
	return path, nil
})

// usage is what metectl shows of a tenant's only quota.
func (s *stage) usage(ctx context.Context, tenant string) (*usage, error) {
	metectl, err := lightMetectl()
	if err != nil {
		return nil, err
	}
	text, err := exec.CommandContext(ctx, metectl, "usage", tenant, "-o", "json", "--endpoints", s.base.Etcd).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("metectl usage %s: %w: %s", tenant, err, text)
	}
	var report struct {
		Limits []struct{ Used, Reserved, Leased *int64 }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	if len(report.Limits) != 1 || report.Limits[0].Used == nil || report.Limits[0].Reserved == nil || report.Limits[0].Leased == nil {
		return nil, fmt.Errorf("metectl usage %s tells of no quota, or of several: %s", tenant, text)
	}
	return &usage{*report.Limits[0].Used + *report.Limits[0].Reserved, *report.Limits[0].Leased}, nil
}

// logged is how many entries Envoy has handed to its log, and how many requests have
// not ended.
func (s *stage) logged(ctx context.Context) (entries, active int, err error) {
	page, err := s.envoy.Get(ctx, "/stats?filter="+`^access_logs\.grpc_access_log\.logs_written$|^http\.ingress\.downstream_rq_active$`)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, 0, fmt.Errorf("Envoy's statistics: %q", line)
		}
		if strings.HasPrefix(name, "access_logs") {
			entries = n
		} else {
			active = n
		}
	}
	return entries, active, nil
}

// heard is how many log entries the replicas have dealt with, by their metrics, and
// how many of those are still on their way to the replica that decided.
func heard(figures map[string]float64) (entries, underway int) {
	return int(total(figures, "mete_access_log_entries_total")),
		int(figures[`mete_settlements_total{result="elsewhere"}`] - total(figures, "mete_settlements_forwarded_total"))
}

// total sums a metric over its labels.
func total(figures map[string]float64, metric string) float64 {
	n := 0.0
	for series, value := range figures {
		if strings.HasPrefix(series, metric+"{") {
			n += value
		}
	}
	return n
}

// metrics are the sums of the replicas' metrics, by series.
func (s *stage) metrics(ctx context.Context) (map[string]float64, error) {
	all := map[string]float64{}
	for _, m := range s.replicas {
		text, err := metricsPage(ctx, m)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			i := strings.LastIndexByte(line, ' ')
			if n, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64); err == nil && i > 0 && line[0] != '#' {
				all[line[:i]] += n
			}
		}
	}
	return all, nil
}

func metricsPage(ctx context.Context, m *rig.Mete) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Metrics+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
