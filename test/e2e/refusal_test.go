package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// Every refusal has one shape, whatever refused (C44), and a quota's 429 can be
// told from a rate limit's (C47). Who is refused for who it is has nothing to wait
// for.
func TestRefusals_C44_C47_OneShape(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), `
hourly: {kind: rate, amount: 4, window: 1h}
monthly: {kind: quota, amount: 2, reset: {calendar: month}}`)
	a.put(t, map[string]string{"tenants/" + a.tenant + "-rated": document("Tenant", a.tenant+"-rated",
		"  app: "+a.name+"\n  limits: {hourly: {kind: rate, amount: 0, window: 1h}}")})
	rated := a.key + "_rated"
	a.put(t, map[string]string{"credentials/" + hash(rated): document("Credential", hash(rated), "  tenant: "+a.tenant+"-rated")})
	a.awaitRoutes(t)
	a.admit(t, 2)

	codes := map[string]bool{}
	for word, tt := range map[string]struct {
		key     string
		status  int
		code    string
		waits   bool
		limited bool
	}{
		"unauthenticated": {"mk_nobody", http.StatusUnauthorized, "UNAUTHENTICATED", false, false},
		"rate_limited":    {rated, http.StatusTooManyRequests, "RATE_LIMITED", false, true}, // of nothing, for ever
		"quota_exceeded":  {a.key, http.StatusTooManyRequests, "QUOTA_EXCEEDED", true, true},
	} {
		r := a.send(t, tt.key)
		var body map[string]any
		if err := json.Unmarshal([]byte(r.body), &body); err != nil {
			t.Fatalf("%s: %v in %q", word, err, r.body)
		}
		if r.status != tt.status || body["error"] != word || body["code"] != tt.code || body["status"] != float64(tt.status) || len(r.seen) != 0 {
			t.Errorf("%s: %d %s, the API saw %d", word, r.status, r.body, len(r.seen))
		}
		for _, member := range []string{"type", "title", "detail", "instance", "success", "message"} {
			if _, ok := body[member]; !ok {
				t.Errorf("%s: no %s in %s", word, member, r.body)
			}
		}
		for _, member := range []string{"details", "limits", "violated-policies"} {
			if _, ok := body[member]; ok != tt.limited {
				t.Errorf("%s: %s is there: %v, in %s", word, member, ok, r.body)
			}
		}
		_, waits := body["retry_after"]
		if header := r.header.Get("Retry-After"); waits != tt.waits || (header != "") != tt.waits {
			t.Errorf("%s: retry_after %v and Retry-After %q, want them: %v", word, waits, header, tt.waits)
		}
		wantHeader(t, r, "Content-Type", "application/json")
		wantHeader(t, r, "Cache-Control", "no-store")
		codes[tt.code] = true
	}
	if len(codes) != 3 {
		t.Errorf("codes %v", codes)
	}
}

// The body is the App's to choose; status and headers stay (R21).
func TestTemplate_R21_BodyOfOnesOwn(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 1, window: 1h}",
		`refusal: {body: template, content_type: "text/html; charset=utf-8", template: "<p>${limit} of ${node}: ${amount}, wait ${retry_after}</p>"}`)
	a.admit(t, 1)
	r := a.refuse(t, http.StatusTooManyRequests)
	wait := r.header.Get("Retry-After")
	if want := "<p>hourly of " + a.tenant + ": 1, wait " + wait + "</p>"; wait == "" || r.body != want {
		t.Errorf("got %q, want %q", r.body, want)
	}
	wantHeader(t, r, "Content-Type", "text/html; charset=utf-8")
	wantHeader(t, r, "RateLimit-Policy", `"hourly";q=1;w=3600`)
	wantHeader(t, r, "RateLimit", `"hourly";r=0;t=`+wait)
}

// The body holds what C46 names, in the envelope form too.
func TestEnvelope_C46_QuotaAndRate(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 3, reset: {calendar: month}}", "refusal: {body: envelope}")
	a.admit(t, 3)
	r := a.refuse(t, http.StatusTooManyRequests)
	var body struct {
		Success *bool
		Code    string
		Message string
		Details struct {
			QuotaType, ResetAt, UpgradeURL string
			Limit, Used                    int64
			Quota                          struct {
				Type                   string
				Limit, Used, Remaining int64
				ResetAt                string
			}
		}
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatal(err)
	}
	d := body.Details
	if body.Success == nil || *body.Success || body.Code != "QUOTA_EXCEEDED" || !strings.HasPrefix(body.Message, "monthly quota reached (3/3); resets ") ||
		d.QuotaType != "monthly" || d.Limit != 3 || d.Used != 3 || d.UpgradeURL != "https://example.com/billing" ||
		d.Quota.Type != "monthly" || d.Quota.Limit != 3 || d.Quota.Used != 3 || d.Quota.Remaining != 0 || d.ResetAt == "" || d.Quota.ResetAt != d.ResetAt {
		t.Errorf("got %s", r.body)
	}
	var keys map[string]any
	if err := json.Unmarshal([]byte(r.body), &keys); err != nil || len(keys) != 4 {
		t.Errorf("members %v, want those of the envelope alone", keys)
	}
}

// A caller that is not verified is counted for no tenant (C36).
func TestUnverified_C36_NotCounted(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), `
hourly: {kind: rate, amount: 5, window: 1h}
monthly: {kind: quota, amount: 5, reset: {calendar: month}}`, "headers: {x_quota: true}")
	off := a.key + "_off"
	a.put(t, map[string]string{"credentials/" + hash(off): document("Credential", hash(off), "  tenant: "+a.tenant+"\n  disabled: true")})
	a.awaitRoutes(t)
	for range 5 {
		for _, key := range []string{"mk_bad", off, a.tenant} {
			r := a.send(t, key, "X-Mete-Tenant: "+a.tenant, "X-Tenant: "+a.tenant)
			if r.status != http.StatusUnauthorized || r.header.Get("RateLimit") != "" || r.header.Get("X-Quota-Used") != "" {
				t.Fatalf("%s: %d %v", key, r.status, r.header)
			}
		}
	}
	r := a.admit(t, 1)
	wantHeader(t, r, "X-Quota-Used", "1")
	if state := r.header.Get("RateLimit"); !strings.HasPrefix(state, `"hourly";r=4;`) {
		t.Errorf("RateLimit = %q, want 4 left: nothing was taken by strangers", state)
	}
}
