package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// An Envoy that lets requests on while mete does not answer: no size of a request makes mete
// silent, and none is a 500 (issue 12, C3 and C4).
func TestSize_C3_C4_NoSizeIsUnanswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(config string) string {
		config = strings.ReplaceAll(config, "failure_mode_allow: false",
			"failure_mode_allow: true\n                      with_request_body: {max_request_bytes: 16777216, pack_as_bytes: true}")
		return config
	})
	a := newApp(t, w, "hourly: {kind: rate, amount: 1000, window: 1h}")
	body := func(key string, size int) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.ingress.Listener("ingress")+"/hello", bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = a.host
		req.Header.Set("X-Api-Key", key)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	for _, size := range []int{4<<20 + 10, 15 << 20} {
		if got := body("", size); got != http.StatusUnauthorized {
			t.Errorf("a body of %d bytes without a key: got %d, want 401", size, got)
		}
		if got := body(a.key, size); got != http.StatusOK {
			t.Errorf("a body of %d bytes: got %d, want 200", size, got)
		}
	}
	seen := map[int]int{}
	for n := 70; n <= 102; n++ {
		var headers []string
		for i := range n {
			headers = append(headers, fmt.Sprintf("x-h-%d: v", i))
		}
		seen[a.fits(t, fmt.Sprint(n, " headers"), headers)]++
	}
	if seen[http.StatusOK] == 0 || seen[http.StatusRequestHeaderFieldsTooLarge] == 0 {
		t.Errorf("by their number: statuses %v, want both kinds", seen)
	}
	clear(seen)
	for size := 60_600; size <= 61_500; size += 20 {
		seen[a.fits(t, fmt.Sprint(size, " bytes"), []string{"x-h: " + strings.Repeat("v", size)})]++
	}
	if seen[http.StatusOK] == 0 || seen[http.StatusRequestHeaderFieldsTooLarge] == 0 {
		t.Errorf("by their size: statuses %v, want both kinds", seen)
	}
}

// fits sends a request with headers, which is served and told who calls, or refused with 431.
func (a *app) fits(t *testing.T, what string, headers []string) (status int) {
	t.Helper()
	r := a.send(t, a.key, headers...)
	switch r.status {
	case http.StatusOK:
		if tenant := r.seen[0].Header.Get("X-Mete-Tenant"); tenant != a.tenant {
			t.Errorf("%s: the API was told of tenant %q", what, tenant)
		}
	case http.StatusRequestHeaderFieldsTooLarge:
	default:
		t.Errorf("%s: got %d %.200s", what, r.status, r.body)
	}
	return r.status
}
