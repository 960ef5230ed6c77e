package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/meteproject/mete/test/rig"
)

// What examples/quickstart says, and the demo holds mete to.
const (
	perSecond = 5
	monthly   = 20
	raised    = 40
	zone      = "Europe/Berlin"
	planKey   = "/mete/v1/plans/free"
)

// inForceWithin is the promise for an edited document.
const inForceWithin = time.Second

// Envoy's log is flushed so often in examples/envoy; settleTries of it are enough for
// any machine.
const (
	flushEvery  = time.Second
	settleTries = 8
)

// A play is the demo's run of requests.
type play struct {
	*stage
	out *printer
	n   int // requests sent; each carries its number
}

// A reply is what came back through Envoy.
type reply struct {
	status  int
	header  http.Header
	body    string
	refusal struct {
		Error      string `json:"error"`
		RetryAfter int64  `json:"retry_after"`
		Detail     string `json:"detail"`
	}
	reached bool // the request reached the API
}

// run plays the steps in order; the first that is not as promised ends it.
func (p *play) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.allowed, p.rateLimited, p.badKey, p.quotaExceeded, p.raise, p.failed, p.descriptors} {
		if err := step(ctx); err != nil {
			return errors.Join(err, p.out.err)
		}
	}
	return nil
}

func (p *play) allowed(ctx context.Context) error {
	p.out.title("A request with a good key reaches the API")
	r, err := p.send(ctx, p.key)
	if err != nil {
		return err
	}
	p.out.reply(r, "Ratelimit-Policy", "Ratelimit", "X-Quota-Limit", "X-Quota-Used", "X-Quota-Remaining", "X-Quota-Reset")
	if r.status != http.StatusOK || !r.reached {
		return fmt.Errorf("want 200 from the API, got %d: %s", r.status, r.body)
	}
	if r.header.Get("Ratelimit") == "" || r.header.Get("X-Quota-Limit") != strconv.Itoa(monthly) {
		return fmt.Errorf("want RateLimit and X-Quota-Limit: %d, got %v", monthly, r.header)
	}
	return nil
}

func (p *play) rateLimited(ctx context.Context) error {
	p.out.title("More than %d in a second: refused, and the API never sees it", perSecond)
	for range 2 * perSecond {
		r, err := p.send(ctx, p.key)
		if err != nil {
			return err
		}
		if r.status == http.StatusOK {
			continue
		}
		p.out.reply(r, "Retry-After", "Ratelimit")
		return r.refused("rate_limited", time.Second, 0)
	}
	return fmt.Errorf("%d requests at once and none was refused", 2*perSecond)
}

func (p *play) badKey(ctx context.Context) error {
	p.out.title("A key that nobody made")
	r, err := p.send(ctx, "mk_wrong")
	if err != nil {
		return err
	}
	p.out.reply(r)
	if r.status != http.StatusUnauthorized || r.reached {
		return fmt.Errorf("want 401 and the API untouched, got %d: %s", r.status, r.body)
	}
	return nil
}

func (p *play) quotaExceeded(ctx context.Context) error {
	p.out.title("The month's %d requests used up: Retry-After leads to the end of the month in %s", monthly, zone)
	for range 3 * monthly {
		if err := pause(ctx, time.Second/perSecond); err != nil {
			return err
		}
		r, err := p.send(ctx, p.key)
		if err != nil {
			return err
		}
		if r.status == http.StatusOK || r.refusal.Error == "rate_limited" {
			continue
		}
		p.out.reply(r, "Retry-After", "X-Quota-Used", "X-Quota-Remaining", "X-Quota-Reset")
		left, err := untilNextMonth(time.Now())
		if err != nil {
			return err
		}
		return r.refused("quota_exceeded", left, 3*time.Second)
	}
	return errors.New("the quota never ran out")
}

// raise edits the plan as an operator would, with etcd's own client.
func (p *play) raise(ctx context.Context) error {
	p.out.title("The month's limit raised to %d with plain etcdctl put", raised)
	text, err := os.ReadFile(p.quickstart("plan.yaml"))
	if err != nil {
		return err
	}
	edited := strings.Replace(string(text), fmt.Sprintf("amount: %d,", monthly), fmt.Sprintf("amount: %d,", raised), 1)
	if _, err := p.etcdctl(ctx, "put", planKey, edited); err != nil {
		return err
	}
	put := time.Now()
	for {
		r, err := p.send(ctx, p.key)
		if err != nil {
			return err
		}
		took := time.Since(put)
		if r.status == http.StatusOK && r.header.Get("X-Quota-Limit") == strconv.Itoa(raised) {
			p.out.say("   in force %d ms after etcdctl returned", took.Milliseconds())
			p.out.reply(r, "X-Quota-Limit", "X-Quota-Used", "X-Quota-Remaining")
			return nil
		}
		if took > inForceWithin {
			return fmt.Errorf("the new limit is not in force after %v: %d %s", took, r.status, r.body)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// failed sends requests that the API fails: each shows what is used with itself in it,
// and is given back once Envoy's log has told how it ended.
func (p *play) failed(ctx context.Context) error {
	p.out.title("Answers that failed cost nothing: use goes back once Envoy has told how they ended")
	if err := pause(ctx, time.Second); err != nil { // for the bucket
		return err
	}
	first, err := p.sendTo(ctx, "/status/503", p.key)
	if err != nil {
		return err
	}
	p.out.reply(first, "X-Quota-Used")
	if first.status != http.StatusServiceUnavailable || !first.reached {
		return fmt.Errorf("want 503 from the API, got %d: %s", first.status, first.body)
	}
	for range settleTries {
		if err := pause(ctx, flushEvery+flushEvery/4); err != nil {
			return err
		}
		r, err := p.sendTo(ctx, "/status/503", p.key)
		if err != nil {
			return err
		}
		if used := r.header.Get("X-Quota-Used"); used == first.header.Get("X-Quota-Used") {
			p.out.reply(r, "X-Quota-Used")
			return nil
		}
	}
	return fmt.Errorf("a failed answer is still counted after %v", settleTries*flushEvery)
}

// invite tells what to try while everything stays up.
func (p *play) invite() {
	p.out.say("\nStill up; Ctrl-C ends it. In another terminal:\n")
	p.out.say("  curl -i -H 'x-api-key: %s' http://%s/hello", p.key, p.proxy.Listener("ingress"))
	p.out.say("  bin/metectl --data-dir %s usage org:acme", p.dir)
	p.out.say("  bin/etcdctl --endpoints %s get --prefix /mete/v1/plans/", p.mete.Etcd)
	p.out.say("  sed s/20,/1000,/ examples/quickstart/plan.yaml | bin/etcdctl --endpoints %s put %s", p.mete.Etcd, planKey)
	p.out.say("  curl http://%s/metrics", p.mete.Metrics)
}

// send sends one request through Envoy.
func (p *play) send(ctx context.Context, key string) (*reply, error) {
	return p.sendTo(ctx, "/hello", key)
}

func (p *play) sendTo(ctx context.Context, path, key string) (*reply, error) {
	return p.get(ctx, p.proxy.Listener("ingress")+path, "X-Api-Key", key)
}

// get sends one request with a header.
func (p *play) get(ctx context.Context, target, header, value string) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target, http.NoBody)
	if err != nil {
		return nil, err
	}
	p.n++
	id := strconv.Itoa(p.n)
	req.Header.Set(header, value)
	req.Header.Set(rig.TestID, id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	r := &reply{status: resp.StatusCode, header: resp.Header, body: string(body), reached: len(p.upstream.Seen(id)) > 0}
	if r.status != http.StatusOK {
		_ = json.Unmarshal(body, &r.refusal) // a body that is not JSON has no error in it
	}
	return r, nil
}

// refused checks a 429: its word, and its wait, give or take some slack.
func (r *reply) refused(word string, wait, slack time.Duration) error {
	after, err := strconv.ParseInt(r.header.Get("Retry-After"), 10, 64)
	if err != nil {
		return fmt.Errorf("%d without a Retry-After in seconds: %v", r.status, r.header)
	}
	off := (time.Duration(after)*time.Second - wait).Abs()
	switch {
	case r.status != http.StatusTooManyRequests || r.refusal.Error != word:
		return fmt.Errorf("want 429 %s, got %d: %s", word, r.status, r.body)
	case r.reached:
		return errors.New("a refused request reached the API")
	case r.refusal.RetryAfter != after:
		return fmt.Errorf("Retry-After is %d and retry_after %d", after, r.refusal.RetryAfter)
	case off > slack:
		return fmt.Errorf("want Retry-After of %v, got %d s", wait, after)
	}
	return nil
}

// untilNextMonth is how long the month in the App's zone still runs.
func untilNextMonth(now time.Time) (time.Duration, error) {
	where, err := time.LoadLocation(zone)
	if err != nil {
		return 0, err
	}
	y, m, _ := now.In(where).Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, where).Sub(now), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
