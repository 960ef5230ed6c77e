package differential_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"pgregory.net/rapid"
)

// How many configurations a running envoyproxy/ratelimit gets at once, each in a domain of its own.
const realCases = 200

// The model is what a real envoyproxy/ratelimit does. The clock is the machine's there, so a sequence does not wait, and one that
// ran over the end of a window is left out.
func TestRealRatelimitIsAsTheModel(t *testing.T) {
	conn, configs := running(t, realCases)
	client, seed := rls.NewRateLimitServiceClient(conn), realSeed()
	compared, over := 0, 0
	for i, c := range configs {
		t.Run(c.domain, func(t *testing.T) {
			g := everything()
			g.steps = []time.Duration{0}
			steps := rapid.Custom(func(t *rapid.T) []step { return drawSteps(t, g, c) }).Example(seed*realCases + i)
			n, refused := againstReal(t, client, newModel(c, ways{}), steps)
			compared, over = compared+n, over+refused
		})
	}
	t.Logf("%d requests compared, %d of them over the limit", compared, over)
}

// What the model does not play: where a real one errs. The unit UNKNOWN, which ends its process, is left out.
func TestRealRatelimitErrs(t *testing.T) {
	conn, configs := running(t, 1)
	domain := configs[0].domain
	ofDomain := func(r request) request { r.domain = domain; return r }
	for _, e := range []struct {
		what string
		r    request
		want string
	}{
		{"no domain", request{descriptors: one("loaded", "x").descriptors}, "rate limit domain must not be empty"},
		{"no descriptors", request{domain: domain}, "rate limit descriptor list must not be empty"},
		{"2^64 - 1 hits", ofDomain(one("counted", "x").hitting(math.MaxUint64)), "INCRBY"},
		{"bytes that are not UTF-8", ofDomain(one("counted", "\xff")), "UTF-8"},
	} {
		_, err := askRaw(t.Context(), conn, e.r.raw(t))
		if err == nil || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%s: %v, not %s", e.what, err, e.want)
		}
	}
}

// running returns a connection to the running envoyproxy/ratelimit, which has loaded n configurations.
func running(t *testing.T, n int) (*grpc.ClientConn, []*config) {
	t.Helper()
	addr, dir := os.Getenv("RATELIMIT_ADDR"), os.Getenv("RATELIMIT_CONFIG_DIR")
	if addr == "" || dir == "" {
		t.Skip("RATELIMIT_ADDR and RATELIMIT_CONFIG_DIR name no running envoyproxy/ratelimit")
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	configs := realConfigs(realSeed()*realCases, n)
	load(t, rls.NewRateLimitServiceClient(conn), dir, configs)
	return conn, configs
}

// realSeed makes other sequences of each number.
func realSeed() int {
	seed, _ := strconv.Atoi(os.Getenv("RATELIMIT_SEED")) // none is 0
	return seed
}

func realConfigs(seed, n int) []*config {
	var all []*config
	run := time.Now().UnixNano()
	for i := range n {
		c := rapid.Custom(func(t *rapid.T) *config { return drawConfig(t, everything()) }).Example(seed + i)
		c.domain = fmt.Sprintf("edge-%d-%d", run, i)
		c.rules = append(c.rules, &rule{key: "loaded", limit: &limit{unlimited: true}}, &rule{key: "counted", limit: per(9, day)})
		all = append(all, c)
	}
	return all
}

// load writes the files and waits until the service knows them all.
func load(t *testing.T, client rls.RateLimitServiceClient, dir string, configs []*config) {
	t.Helper()
	for _, c := range configs {
		name := filepath.Join(dir, c.domain+".yaml")
		t.Cleanup(func() { _ = os.Remove(name) })
		hidden := filepath.Join(dir, "."+c.domain) // half a file would be loaded, too
		if err := os.WriteFile(hidden, []byte(c.yaml()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(hidden, name); err != nil {
			t.Fatal(err)
		}
	}
	till := time.Now().Add(30 * time.Second)
	for _, c := range configs {
		for {
			a, err := ask(t.Context(), client, request{domain: c.domain, descriptors: []descriptor{{entries: []entry{{"loaded", "x"}}}}})
			if err == nil && a.statuses[0].remaining > 0 {
				break
			}
			if time.Now().After(till) {
				t.Fatalf("the service did not load the files of %s within 30 s (domain %s: %v)", dir, c.domain, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// againstReal returns how many requests were compared, and how many were over.
func againstReal(t *testing.T, client rls.RateLimitServiceClient, m *model, steps []step) (compared, over int) {
	t.Helper()
	begun := time.Now()
	for i, s := range steps {
		now := time.Now()
		got, err := ask(t.Context(), client, s.request)
		if err != nil {
			t.Fatalf("step %d, %v: %v\n%s", i, s.request, err, m.conf.yaml())
		}
		if time.Now().Unix() != begun.Unix() {
			return compared, over // another second: counters of a second may have ended between
		}
		want := m.answer(now, s.request).seen(func(s status) status { s.spare, s.never = 0, false; return s })
		if d := differ(want, got); d != "" {
			t.Fatalf("step %d: %s\nrequest %v\nmodel %v\nreal  %v\n%s", i, d, s.request, want, got, m.conf.yaml())
		}
		compared++
		if got.over {
			over++
		}
	}
	return compared, over
}

// ask sends a request over the wire.
func ask(ctx context.Context, client rls.RateLimitServiceClient, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := client.ShouldRateLimit(ctx, r.wire())
	if err != nil {
		return answer{}, err
	}
	return readAnswer(out)
}
