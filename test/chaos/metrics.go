package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metric reads a metric of the replica: the sum of its series, or the one whose labels
// are written, too. What is not there is 0.
func (r *replica) metric(ctx context.Context, name string) (int64, error) {
	text, err := fetch(ctx, "http://"+r.mete.Metrics+"/metrics")
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			return 0, fmt.Errorf("metrics of %s: %q: %w", r.name, line, err)
		}
		sum += n
	}
	return int64(sum), nil
}

// sum returns the sum of a metric over all replicas that run.
func (w *world) sum(ctx context.Context, name string) (sum int64, err error) {
	var errs []error
	for _, r := range w.replicas {
		if r.mete == nil {
			continue
		}
		n, err := r.metric(ctx, name)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}
