package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// frontRate is how many requests a second a front gets.
const frontRate = 300

// A front is what stands before the replicas: an Envoy with the configuration of the
// examples, and the API behind it.
type front struct {
	envoy    *envoy.Process
	upstream *rig.Upstream
	client   *http.Client
	before   int64 // reservations that were open before it: of requests that no Envoy has sent
}

// A frontConfig says what an Envoy's configuration has other than the example.
type frontConfig struct {
	checks, logs []string          // addresses: who is asked, and who is told how requests ended
	edits        map[string]string // texts of the example, and what comes in their place
}

// startFront starts an API and an Envoy. The caller must stop it.
func startFront(ctx context.Context, cfg frontConfig) (_ *front, err error) {
	f := &front{client: &http.Client{
		Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000},
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if f.upstream, err = rig.StartUpstream(ctx); err != nil {
		return nil, err
	}
	config, err := cfg.text(f.upstream.Address)
	if err != nil {
		return nil, err
	}
	binary, err := envoy.Binary(ctx)
	if err != nil {
		return nil, err
	}
	f.envoy, err = envoy.Start(ctx, binary, config)
	return f, err
}

// text returns the configuration, with the API at an address.
func (cfg *frontConfig) text(upstream string) (string, error) {
	root, err := envoy.Root()
	if err != nil {
		return "", err
	}
	example, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "envoy.yaml"))
	if err != nil {
		return "", err
	}
	config, err := envoy.Ports(string(example), map[int]int{9901: 0, 10000: 0, 8000: rig.Port(upstream)})
	if err != nil {
		return "", err
	}
	edits := map[string]string{
		clusterOf("mete", "127.0.0.1:9001"):     clusterOf("mete", cfg.checks...),
		clusterOf("mete_log", "127.0.0.1:9001"): clusterOf("mete_log", cfg.logs...),
	}
	for _, some := range []map[string]string{edits, cfg.edits} {
		for from, to := range some {
			if !strings.Contains(config, from) {
				return "", fmt.Errorf("examples/envoy/envoy.yaml has no %q", from)
			}
			config = strings.ReplaceAll(config, from, to)
		}
	}
	return config, nil
}

// clusterOf is how the example writes the members of a cluster.
func clusterOf(name string, addresses ...string) string {
	var all []string
	for _, a := range addresses {
		all = append(all, fmt.Sprintf("{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}", rig.Port(a)))
	}
	return fmt.Sprintf("cluster_name: %s\n        endpoints: [{lb_endpoints: [%s]}]", name, strings.Join(all, ", "))
}

func (f *front) stop() error {
	f.client.CloseIdleConnections()
	var errs []error
	if f.envoy != nil {
		errs = append(errs, f.envoy.Stop())
	}
	if f.upstream != nil {
		errs = append(errs, f.upstream.Stop())
	}
	return errors.Join(errs...)
}

// get sends a request and returns the status that it is answered with.
func (f *front) get(ctx context.Context, path string, headers ...string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.envoy.Listener("ingress")+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// send sends a request of a bill's outcome and counts what became of it. Where the API
// answers 200 it may be slow about that: it takes a second and a half.
func (f *front) send(ctx context.Context, b *bill, slow bool) {
	act := b.act
	if slow && b.status == http.StatusOK {
		act = rig.ActSlow
	}
	headers := []string{"x-api-key", b.key(), rig.TestAct, act}
	if b.use != "" {
		headers = append(headers, rig.TestUse, b.use)
	}
	switch status, err := f.get(ctx, b.path, headers...); {
	case err == nil && status == b.status:
		b.answered.Add(1)
	case err == nil && status == http.StatusServiceUnavailable:
		b.unavailable.Add(1)
	default:
		b.others.Add(1)
	}
}

// load is requests of all outcomes, one of twenty of them slow: it ends when who has let it
// on may be gone.
func (f *front) load(seed uint64, bills []*bill) load {
	return load{callers: 100, rate: frontRate, seed: seed, f: func(ctx context.Context, rng *rand.Rand) {
		f.send(ctx, bills[rng.IntN(len(bills))], rng.IntN(20) == 0)
	}}
}

// stat reads one of Envoy's statistics; 0 if there is none of that name.
func (f *front) stat(ctx context.Context, name string) (int64, error) {
	page, err := f.envoy.Get(ctx, "/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	if err != nil {
		return 0, err
	}
	_, value, found := strings.Cut(strings.TrimSpace(page), ": ")
	if !found {
		return 0, nil
	}
	return strconv.ParseInt(value, 10, 64)
}

// healthy waits until Envoy asks and tells n replicas.
func (f *front) healthy(ctx context.Context, n int64) error {
	return retry(ctx, 30*time.Second, "Envoy's health checks", func(ctx context.Context) error {
		for _, cluster := range []string{"mete", "mete_log"} {
			got, err := f.stat(ctx, "cluster."+cluster+".membership_healthy")
			if err != nil {
				return err
			}
			if got != n {
				return fmt.Errorf("%d hosts of %s are healthy, want %d", got, cluster, n)
			}
		}
		return nil
	})
}

// allArrived waits until all that Envoy has logged has come, or never will: entries of one of
// its threads, and it has one, come in order. Requests for /healthz are logged
// and reserve nothing.
func (f *front) allArrived(ctx context.Context, w *world) error {
	for range 3 { // the first entry to come may be older than the request
		before, err := w.sum(ctx, `mete_access_log_entries_total{kind="unreserved"}`)
		if err != nil {
			return err
		}
		if err := retry(ctx, 30*time.Second, "Envoy's log", func(ctx context.Context) error {
			_ = sleep(ctx, 50*time.Millisecond)
			if status, err := f.get(ctx, "/healthz"); err != nil || status != http.StatusOK {
				return fmt.Errorf("the answer to /healthz is %d, %w", status, err)
			}
			now, err := w.sum(ctx, `mete_access_log_entries_total{kind="unreserved"}`)
			if err == nil && now <= before {
				err = errors.New("no entry of a request for /healthz arrives")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return w.quiet(ctx)
}

// quiet waits until replicas have passed on to each other what is to be, and nothing has been
// settled for a second.
func (w *world) quiet(ctx context.Context) error {
	var last int64
	since := time.Now()
	return retry(ctx, time.Minute, "settlements", func(ctx context.Context) error {
		_ = sleep(ctx, 100*time.Millisecond)
		queued, err := w.sum(ctx, "mete_settlements_queued")
		if err != nil {
			return err
		}
		settled, err := w.sum(ctx, "mete_settlements_total")
		if err != nil {
			return err
		}
		if queued > 0 || settled != last {
			last, since = settled, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("%d are made, %d wait to be passed on", settled, queued)
		}
		return nil
	})
}
