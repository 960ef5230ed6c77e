package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"
)

// refusal is the part of a refusal's body that tests look at.
type refusal struct {
	Type       string   `json:"type"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Instance   string   `json:"instance"`
	Violated   []string `json:"violated-policies"`
	Error      string   `json:"error"`
	RetryAfter int64    `json:"retry_after"`
	Success    *bool    `json:"success"`
	Code       string   `json:"code"`
	Details    struct {
		QuotaType  string    `json:"quotaType"`
		Limit      int64     `json:"limit"`
		Used       int64     `json:"used"`
		ResetAt    time.Time `json:"resetAt"`
		UpgradeURL string    `json:"upgradeUrl"`
		Quota      struct {
			Type      string
			Limit     int64
			Remaining *int64
		} `json:"quota"`
	} `json:"details"`
}

// refusal reads the body of a refusal, and checks that Retry-After says the same.
func (r *reply) refusal(t *testing.T) refusal {
	t.Helper()
	var body refusal
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	header := r.header.Get("Retry-After")
	if header != strconv.FormatInt(body.RetryAfter, 10) && (header != "" || body.RetryAfter != 0) {
		t.Errorf("Retry-After %q and retry_after %d differ", header, body.RetryAfter)
	}
	return body
}

func wantHeader(t *testing.T, r *reply, name, want string) {
	t.Helper()
	if got := r.header.Values(name); len(got) != 1 || got[0] != want {
		t.Errorf("%s = %q, want %q once", name, got, want)
	}
}

// berlinMonthEnd is when the month that holds now ends in Berlin.
func berlinMonthEnd(t *testing.T, now time.Time) time.Time {
	t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	y, m, _ := now.In(berlin).Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, berlin)
}

func TestAllowed_R5_R6_R7(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), `
per_second: {kind: rate, amount: 10, window: 1s}
per_minute: {kind: rate, amount: 300, window: 1m}`)
	r := a.admit(t, 1)
	wantHeader(t, r, "RateLimit-Policy", `"per_second";q=10;w=1, "per_minute";q=300;w=60`)
	wantHeader(t, r, "RateLimit", `"per_second";r=9;t=1, "per_minute";r=299;t=1`)
	if got := r.header.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After = %q on a 200, want none", got)
	}
}

func TestRateLimited_R1_R3_R4_R9_R15_R19_R20(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), `
hourly: {kind: rate, amount: 3, window: 1h}
monthly: {kind: quota, amount: 100, reset: {calendar: month}}`, "headers: {x_quota: true}")
	wantHeader(t, a.admit(t, 3), "X-Quota-Used", "3")

	for range 2 { // the second one finds the same: a refusal takes nothing
		r := a.refuse(t, http.StatusTooManyRequests)
		body := r.refusal(t)
		if body.Error != "rate_limited" || body.Code != "RATE_LIMITED" || !slices.Equal(body.Violated, []string{"hourly"}) {
			t.Errorf("got %+v, want rate_limited by hourly", body)
		}
		if body.RetryAfter < 1190 || body.RetryAfter > 1200 { // a token each 20 minutes
			t.Errorf("Retry-After = %d, want the 1,200 s until a token, less the time that this test took", body.RetryAfter)
		}
		wantHeader(t, r, "X-Quota-Used", "3")
		if got := r.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type = %q, want application/json", got)
		}
	}
}

// A bucket refills continuously: a tenth of a second is one of ten tokens.
func TestRateLimited_R15_R16_RefillsContinuously(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "per_second: {kind: rate, amount: 2, window: 4s}")
	a.admit(t, 2)
	if got := a.refuse(t, http.StatusTooManyRequests).refusal(t).RetryAfter; got < 1 || got > 2 {
		t.Errorf("Retry-After = %d, want at most the 2 s of one token", got)
	}
	time.Sleep(2100 * time.Millisecond)
	a.admit(t, 1)
}

func TestQuotaExceeded_A3_A4_A13_A14_C46(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 4, reset: {calendar: month}}")
	a.admit(t, 4)

	for range 2 { // A10: a refusal uses nothing
		r := a.refuse(t, http.StatusTooManyRequests)
		body := r.refusal(t)
		end := berlinMonthEnd(t, time.Now())
		if body.Error != "quota_exceeded" || body.Code != "QUOTA_EXCEEDED" || body.Success == nil || *body.Success {
			t.Errorf("got %+v, want quota_exceeded", body)
		}
		if off := time.Until(end) - time.Duration(body.RetryAfter)*time.Second; off.Abs() > 3*time.Second {
			t.Errorf("Retry-After = %d s, want the end of the month in Berlin, %v", body.RetryAfter, end)
		}
		d := body.Details
		if d.QuotaType != "monthly" || d.Limit != 4 || d.Used != 4 || !d.ResetAt.Equal(end) || d.UpgradeURL != "https://example.com/billing" {
			t.Errorf("details = %+v, want monthly, 4 of 4, reset at %v, the plan's upgrade_url", d, end)
		}
		if d.Quota.Type != "monthly" || d.Quota.Limit != 4 || d.Quota.Remaining == nil || *d.Quota.Remaining != 0 {
			t.Errorf("quota = %+v, want what is left of monthly", d.Quota)
		}
	}
}

func TestXQuota_C45(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 4, reset: {calendar: month}}", "headers: {x_quota: true}")
	reset := berlinMonthEnd(t, time.Now()).UTC().Format("2006-01-02T15:04:05.000Z")
	check := func(r *reply, used, left string) {
		t.Helper()
		wantHeader(t, r, "X-Quota-Limit", "4")
		wantHeader(t, r, "X-Quota-Used", used)
		wantHeader(t, r, "X-Quota-Remaining", left)
		wantHeader(t, r, "X-Quota-Reset", reset)
	}
	check(a.admit(t, 1), "1", "3")
	check(a.admit(t, 3), "4", "0")
	check(a.refuse(t, http.StatusTooManyRequests), "4", "0")
}

func TestProblemJSON(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 1, window: 1h}")
	a.admit(t, 1)
	r := a.refuse(t, http.StatusTooManyRequests, "Accept: application/problem+json")
	wantHeader(t, r, "Content-Type", "application/problem+json")
	body := r.refusal(t)
	if body.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || body.Status != 429 || body.Detail == "" {
		t.Errorf("got %+v, want a quota-exceeded problem", body)
	}
}

// Both limits run out at once: the longer wait is the one to tell.
func TestTwoLimits_R17_LongestWait(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), `
per_minute: {kind: rate, amount: 2, window: 1m}
daily: {kind: rate, amount: 2, window: 24h}`)
	a.admit(t, 2)
	body := a.refuse(t, http.StatusTooManyRequests).refusal(t)
	if !slices.Equal(body.Violated, []string{"daily", "per_minute"}) && !slices.Equal(body.Violated, []string{"per_minute", "daily"}) {
		t.Errorf("violated-policies = %q, want both", body.Violated)
	}
	if body.RetryAfter < 43100 || body.RetryAfter > 43200 {
		t.Errorf("Retry-After = %d, want the half day of the longer one", body.RetryAfter)
	}
}

// A limit written into etcd is in force within a second (R12, A54, Q67), up and down.
func TestLimitChange_R12_A54_Q67(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 3, reset: {calendar: month}}", "headers: {x_quota: true}")
	a.admit(t, 3)
	a.refuse(t, http.StatusTooManyRequests) // and is remembered for 10 s

	for _, amount := range []int{5, 2, 7} {
		limit := strconv.Itoa(amount)
		a.put(t, map[string]string{"plans/" + a.name: a.plan("monthly: {kind: quota, amount: " + limit + ", reset: {calendar: month}}")})
		began := time.Now()
		var r *reply
		for r == nil || r.header.Get("X-Quota-Limit") != limit {
			if took := time.Since(began); took > settleWithin {
				t.Fatalf("limit %s is not in force after %v: X-Quota-Limit is %q", limit, took, r.header.Get("X-Quota-Limit"))
			}
			r = a.send(t, a.key)
		}
		t.Logf("limit %s in force after %v", limit, time.Since(began))
		if want := map[bool]int{true: 200, false: 429}[amount > 2]; r.status != want {
			t.Errorf("limit %s: got %d %s, want %d", limit, r.status, r.body, want)
		}
		if amount == 5 {
			a.admit(t, 1)
			a.refuse(t, http.StatusTooManyRequests)
		}
	}
}
