package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
)

// exports is what examples/ratelimit/edge.yaml gives an organisation in an hour.
const exports = 5

// descriptors puts a file of envoyproxy/ratelimit in as it is, and asks through an Envoy
// that was made for that service.
func (p *play) descriptors(ctx context.Context) error {
	p.out.title("A file of envoyproxy/ratelimit, as it is, and an Envoy that asked that service: %d exports an hour", exports)
	if _, err := p.metectl(ctx, "import", "envoy-ratelimit", filepath.Join(p.root, "examples", "ratelimit")); err != nil {
		return err
	}
	var err error
	if p.edge, err = p.startEnvoy(ctx, "descriptors.yaml", 9903, 10002); err != nil {
		return err
	}
	for n := range exports + 1 {
		r, err := p.get(ctx, p.edge.Listener("edge")+"/export", "X-Org", "acme")
		if err != nil {
			return err
		}
		refused := n == exports
		if refused || n == 0 {
			p.out.reply(r, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After")
		}
		switch {
		case refused && (r.status != http.StatusTooManyRequests || r.reached):
			return fmt.Errorf("want 429 for export %d and the API untouched, got %d: %s", n+1, r.status, r.body)
		case !refused && (r.status != http.StatusOK || r.header.Get("X-Ratelimit-Remaining") != strconv.Itoa(exports-1-n)):
			return fmt.Errorf("want 200 for export %d and %d left, got %d %v: %s", n+1, exports-1-n, r.status, r.header, r.body)
		}
	}
	return nil
}
