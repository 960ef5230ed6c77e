package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const defaultAdmin = "127.0.0.1:9002"

// maxAnswer bounds what is read of an answer: a thousand reservations are far less.
const maxAnswer = 64 << 20

// An adminAPI is that of one mete.
type adminAPI struct {
	address string // as it was given
	base    string // of URLs
	token   string
	client  *http.Client
}

// adminAPI finds the admin API that the flag --admin names, else the environment, else the data
// folder.
func (c *cli) adminAPI(flag string) (*adminAPI, error) {
	a := &adminAPI{address: flag, token: c.env("METECTL_ADMIN_TOKEN")}
	if a.address == "" {
		a.address = c.env("METECTL_ADMIN")
	}
	if a.address == "" && c.dataDir != "" {
		text, err := os.ReadFile(filepath.Join(c.dataDir, "addresses.json"))
		if err != nil {
			return nil, fileError("cannot find the mete of this data folder", err)
		}
		var addresses struct {
			Admin string `json:"admin"`
		}
		if err := json.Unmarshal(text, &addresses); err != nil || addresses.Admin == "" {
			return nil, usageError("addresses.json in "+c.dataDir+" names no admin API", "name it with --admin")
		}
		a.address = addresses.Admin
	}
	if a.address == "" {
		a.address = defaultAdmin
	}
	transport := &http.Transport{DisableKeepAlives: true}
	a.client = &http.Client{Transport: transport}
	switch path, socket := strings.CutPrefix(a.address, "unix://"); {
	case socket:
		a.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	case strings.HasPrefix(a.address, "https://"):
		var err error
		if transport.TLSClientConfig, err = c.tlsConfig([]string{a.address}); err != nil {
			return nil, err
		}
		a.base = strings.TrimSuffix(a.address, "/")
	default:
		a.base = "http://" + strings.TrimSuffix(strings.TrimPrefix(a.address, "http://"), "/")
	}
	return a, nil
}

// call asks the API: by POST with a body, else by GET. The answer is read into v.
func (c *cli) call(ctx context.Context, a *adminAPI, what, path string, body, v any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(text))
	if err != nil {
		return usageError("--admin "+a.address+": "+err.Error(), "write --admin "+defaultAdmin)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return &failure{
			code: exitUnreachable, what: what, why: err.Error(),
			next: "name the admin API of the mete that was started again with --admin or --data-dir; --timeout allows more time",
		}
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &failure{code: exitUnreachable, what: what, why: err.Error(), next: "try again; --timeout allows more time"}
	}
	if resp.StatusCode != http.StatusOK {
		return refusedBy(a, what, resp.StatusCode, string(answer))
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return &failure{code: exitUnreachable, what: what, why: a.address + " answers what is not an answer of mete's: " + err.Error(), next: "check --admin"}
	}
	return nil
}

// refusedBy tells what an answer means that is no 200.
func refusedBy(a *adminAPI, what string, status int, answer string) error {
	f := &failure{code: exitUnreachable, what: what, why: strings.TrimSpace(answer), next: "try again in a moment"}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.code, f.next = exitForbidden, "set METECTL_ADMIN_TOKEN, use a certificate that may do this, or ask on the machine of that mete"
	case http.StatusBadRequest:
		f.code, f.next = exitUsage, "metectl reservations --help says what can be asked"
	case http.StatusNotFound:
		f.why, f.next = fmt.Sprintf("%s has no such call: %s", a.address, f.why), "check --admin, and that this mete has the version of this metectl"
	}
	return f
}
