package e2e_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// withCORS puts the two parts of cors.yaml where they say.
func withCORS(t *testing.T) func(config string) string {
	t.Helper()
	filter, policy, ok := strings.Cut(readExample("cors.yaml"), "\n---\n")
	const filters, domains = "                http_filters:\n", "                      domains: [\"*\"]\n"
	return func(config string) string {
		if !ok || strings.Count(config, filters) != 1 || strings.Count(config, domains) != 1 {
			t.Error("the examples have another form")
		}
		return strings.NewReplacer(filters, filters+inside(18, listed(filter))+"\n", domains, domains+inside(22, uncommented(policy))+"\n").Replace(config)
	}
}

// uncommented returns a part of an example without its comments.
func uncommented(text string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") })
	return strings.Join(lines, "\n")
}

// ask sends a request with any method, with headers "Name: value".
func (a *app) ask(t *testing.T, method string, headers ...string) *reply {
	t.Helper()
	return a.sendAs(t, method, a.ingress.Listener("ingress"), headers...)
}

// Browsers ask before they call, without a key, and can read why they were refused: with
// the rule of docs/browsers.md preflights cost nothing whatever key they carry.
func TestBrowsers_C168_PreflightsAndRefusals(t *testing.T) {
	t.Parallel()
	const known, stranger = "Origin: https://app.example.com", "Origin: https://other.example"
	const asks = "Access-Control-Request-Method: GET"
	a := newApp(t, newWorld(t, nil, withCORS(t)), "hourly: {kind: rate, amount: 2, window: 1h}\nmonthly: {kind: quota, amount: 100, reset: {calendar: month}}")
	key := "X-Api-Key: " + a.key

	// Envoy itself answers an origin that it knows; who it does not know reaches mete, which
	// has no rule for that yet.
	if r := a.ask(t, http.MethodOptions, known, asks); r.status != http.StatusOK || len(r.seen) != 0 ||
		r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(r.header.Get("Access-Control-Allow-Headers"), "x-api-key") {
		t.Errorf("a preflight of a known origin: %d %v, the API saw %d", r.status, r.header, len(r.seen))
	}
	if r := a.ask(t, http.MethodOptions, stranger, asks); r.status != http.StatusUnauthorized || len(r.seen) != 0 {
		t.Errorf("a preflight of a stranger without the rule: %d", r.status)
	}
	a.put(t, map[string]string{"routes/browsers": strings.Replace(ruleOfBrowsers(t), "app: api", "app: "+a.name, 1)})
	a.awaitRoutes(t)
	for _, headers := range [][]string{{stranger, asks}, {stranger, asks, key}, {stranger, asks, "X-Api-Key: nobody"}, {known}, {key}, nil} {
		for range 5 {
			if r := a.ask(t, http.MethodOptions, headers...); r.status != http.StatusOK || len(r.seen) != 1 || r.header.Get("RateLimit") != "" {
				t.Fatalf("OPTIONS with %q: %d %s, the API saw %d", headers, r.status, r.body, len(r.seen))
			}
		}
	}
	if r := a.sendAs(t, http.MethodOptions, a.ingress.Listener("ingress")+"/reports/a;b", stranger, asks); r.status != http.StatusOK || len(r.seen) != 1 {
		t.Errorf("a path that servers may read differently: %d %s", r.status, r.body)
	}

	// Nothing was taken, and what is refused can be read by the origin, and by no other.
	for left := 1; left >= 0; left-- {
		r := a.ask(t, http.MethodGet, key, known)
		if !strings.HasPrefix(r.header.Get("RateLimit"), `"hourly";r=`+string(rune('0'+left))+";") || r.status != http.StatusOK {
			t.Fatalf("%d, RateLimit: %s; want %d left", r.status, r.header.Get("RateLimit"), left)
		}
		wantReadable(t, r)
	}
	over := a.ask(t, http.MethodGet, key, known)
	if over.status != http.StatusTooManyRequests || over.header.Get("Retry-After") == "" || over.header.Get("RateLimit") == "" || over.header.Get("RateLimit-Policy") == "" {
		t.Errorf("over: %d %v", over.status, over.header)
	}
	wantReadable(t, over)
	nobody := a.ask(t, http.MethodGet, known)
	if nobody.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", nobody.status)
	}
	wantReadable(t, nobody)
	if r := a.ask(t, http.MethodGet, key, stranger); r.status != http.StatusTooManyRequests || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a stranger may read %v", r.header)
	}
}

// wantReadable fails unless JavaScript of the known origin can read an answer and what
// it says of limits.
func wantReadable(t *testing.T, r *reply) {
	t.Helper()
	exposed := strings.Split(strings.ToLower(strings.Join(r.header.Values("Access-Control-Expose-Headers"), ",")), ",")
	for i := range exposed {
		exposed[i] = strings.TrimSpace(exposed[i])
	}
	for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
		if !slices.Contains(exposed, name) {
			t.Errorf("%d: %s is not exposed: %q", r.status, name, exposed)
		}
	}
	if got := r.header.Values("Access-Control-Allow-Origin"); !slices.Equal(got, []string{"https://app.example.com"}) {
		t.Errorf("%d: Access-Control-Allow-Origin: %q", r.status, got)
	}
}

// ruleOfBrowsers returns the Routes document of docs/browsers.md.
func ruleOfBrowsers(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/browsers.md")
	_, text, ok := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	_, text, _ = strings.Cut(text, "---\n")
	if err != nil || !ok {
		t.Fatalf("docs/browsers.md has no document: %v", err)
	}
	return text
}
