package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/meteproject/mete/test/rig"
)

// A usage is what metectl tells of a tenant's quota.
type usage struct{ used, leased int64 }

// usage asks metectl.
func (s *stage) usage(ctx context.Context, c *cell) (usage, error) {
	bin, err := binaries()
	if err != nil {
		return usage{}, err
	}
	text, err := exec.CommandContext(ctx, filepath.Join(bin, "metectl"), "usage", c.tenant(), "-o", "json", "--endpoints", s.base.Etcd).Output()
	if err != nil {
		return usage{}, fmt.Errorf("metectl usage %s: %w: %s", c.tenant(), err, text)
	}
	var report struct {
		Limits []struct{ Used, Leased *int64 }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return usage{}, err
	}
	if len(report.Limits) != 1 || report.Limits[0].Used == nil || report.Limits[0].Leased == nil {
		return usage{}, fmt.Errorf("metectl usage %s tells of no quota, or of several: %s", c.tenant(), text)
	}
	return usage{*report.Limits[0].Used, *report.Limits[0].Leased}, nil
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
