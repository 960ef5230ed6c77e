package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// admin asks the admin API of an edge: a body is sent by POST.
func (e *edge) admin(t *testing.T, path, body string, into any) int {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+e.a.Admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, text)
	}
	return resp.StatusCode
}

// Issue 12, D4: what a process that was killed has left unsettled is listed and forgiven at the
// next, once; the account is then what was settled.
func TestForgive_A26_AfterKill9(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	k := startKillable(t, dir)
	putDocuments(t, k.etcd)
	settled := k.sealed(t)
	for range 3 {
		k.sealed(t)
	}
	k.logs(t, settled, 200)
	k.says(t, `mete_settlements_total{result="as_reserved"} 1`)
	k.kill(t)

	k = startKillable(t, dir)
	var young, list leftList
	k.admin(t, "/v1/reservations", "", &young)
	k.admin(t, "/v1/reservations?older_than=0s", "", &list)
	if young.Matching != 0 || len(young.Reservations) != 0 || young.Outstanding != 3 || list.Matching != 3 || len(list.Reservations) != 3 || list.Unknown != 0 {
		t.Fatalf("listed %+v, and of 10 minutes and more %+v", list, young)
	}
	one := list.Reservations[0]
	if len(one.Charges) != 1 || one.Charges[0].Tenant != "org:acme" || one.Charges[0].Units != 1 {
		t.Errorf("charges %+v", one.Charges)
	}
	for _, c := range []struct{ name, body, want string }{
		{"too young", `{"decisions": ["` + one.Decision + `"]}`, `{"forgiven":0,"already_settled":0,"too_young":["` + one.Decision + `"],"units":{}}`},
		{"by id", `{"decisions": ["` + strings.ToLower(one.Decision) + `"], "older_than": "0s"}`, `{"forgiven":1,"already_settled":0,"units":{"requests":1}}`},
		{"again", `{"decisions": ["` + one.Decision + `"], "older_than": "0s"}`, `{"forgiven":0,"already_settled":1,"units":{}}`},
		{"nobody's", `{"decisions": ["01ARZ3NDEKTSV4RRFFQ69G5FAV"]}`, `{"forgiven":0,"already_settled":0,"unknown":["01ARZ3NDEKTSV4RRFFQ69G5FAV"],"units":{}}`},
		{"another tenant", `{"tenant": "org:other", "older_than": "0s"}`, `{"forgiven":0,"already_settled":0,"units":{}}`},
		{"all, too young", `{"all": true}`, `{"forgiven":0,"already_settled":0,"units":{}}`},
		{"all of a tenant", `{"tenant": "org:acme", "older_than": "0s"}`, `{"forgiven":2,"already_settled":0,"units":{"requests":2}}`},
		{"all", `{"all": true, "older_than": "0s"}`, `{"forgiven":0,"already_settled":0,"units":{}}`},
	} {
		var done forgiven
		k.admin(t, "/v1/reservations/forgive", c.body, &done)
		if got, _ := json.Marshal(done); string(got) != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for _, bad := range []string{`{}`, `{"all": true, "tenant": "org:acme"}`, `{"decision": "x"}`, `{"decisions": ["x"]}`, `{"all": true, "older_than": "-1s"}`, `{"all": true}{}`} {
		if code := k.admin(t, "/v1/reservations/forgive", bad, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, code)
		}
	}
	k.says(t, "mete_reservations_unsettled 0")
	k.kill(t)

	if err := removeAddresses(dir); err != nil {
		t.Fatal(err)
	}
	r, e := startEdge(t, dir) // what was forgiven is so after one more kill
	e.admin(t, "/v1/reservations?older_than=0s", "", &list)
	if list.Matching != 0 || list.Outstanding != 0 {
		t.Errorf("listed again: %+v", list)
	}
	e.stop(t, r)
	r.dir = dir
	r.checkAccount(t, 1)
}
