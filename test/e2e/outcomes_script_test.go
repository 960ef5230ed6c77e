package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/meteproject/mete/test/rig"
)

// A script is how to bring an outcome about. Without anything it is a GET over
// HTTP/1.1 to the first listener.
type script struct {
	listener string // of Envoy; "": "ingress"
	route    string // of Envoy, by header x-test-route
	path     string // "": one of the column
	host     string // the first label; "": the app's
	act      string // of the upstream
	check    string // of the proxy before mete
	edge     string // tenant for Envoy's rate limit filter
	method   string // "": GET
	stranger bool   // with a key that is not known

	by func(context.Context, *caller) (saw string, err error) // nil: get
}

// A caller sends the requests of one cell: of one outcome in one column.
type caller struct {
	*stage
	script

	app, id, key string
	column       *column
	target       string // the listener's address
}

// headers are what makes the outcome happen, and who calls.
func (c *caller) headers() []string {
	key := c.key
	if c.stranger {
		key += "-not"
	}
	all := []string{"x-api-key: " + key, rig.TestID + ": " + c.id}
	for name, value := range map[string]string{
		rig.TestAct: c.act, rig.TestUse: c.column.use, rig.TestCheck: c.check, "x-test-route": c.route, "x-test-edge": c.edge,
	} {
		if value != "" {
			all = append(all, name+": "+value)
		}
	}
	return all
}

// pairs are the same as gRPC wants them.
func (c *caller) pairs() []string {
	var all []string
	for _, line := range c.headers() {
		name, value, _ := strings.Cut(line, ": ")
		all = append(all, name, value)
	}
	return all
}

func (c *caller) authority() string {
	if c.host != "" {
		return c.host + ".outcomes.test"
	}
	return c.app + ".outcomes.test"
}

func (c *caller) where() string {
	if c.path != "" {
		return c.path
	}
	return "/" + c.column.name + "/things"
}

// rpc is the gRPC method of the column.
func (c *caller) rpc() string { return "/" + c.column.name + ".Outcomes/Call" }

func (c *caller) verb() string {
	if c.method != "" {
		return c.method
	}
	return http.MethodGet
}

// head is the head of the request over HTTP/1.1.
func (c *caller) head(more ...string) string {
	return rig.Head(c.verb(), c.where(), c.authority(), append(c.headers(), more...)...)
}

// connect dials the listener and sends text.
func (c *caller) connect(ctx context.Context, text string) (*rig.HTTP1, error) {
	conn, err := rig.DialHTTP1(ctx, c.target)
	if err != nil {
		return nil, err
	}
	if err := conn.Send(text); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// read reads a response to its end, and tells what came. What breaks off once it is
// released is released when the beginning of the body is here.
func (c *caller) read(resp *http.Response) string {
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, 1)
	_, err := io.ReadFull(resp.Body, first)
	c.upstream.Meetings.Release(c.id)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Sprint(resp.StatusCode, ", cut off")
	}
	return fmt.Sprint(resp.StatusCode)
}

// exchange sends a request over HTTP/1.1 and reads the response.
func (c *caller) exchange(ctx context.Context, text string) (string, error) {
	conn, err := c.connect(ctx, text)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	resp, err := conn.Receive(c.verb())
	if err != nil {
		return "", err
	}
	return c.read(resp), nil
}

func get(ctx context.Context, c *caller) (string, error) {
	return c.exchange(ctx, c.head())
}

// thousand is a body.
func thousand() string { return strings.Repeat("0123456789", 100) }

func post(ctx context.Context, c *caller) (string, error) {
	c.method = http.MethodPost
	return c.exchange(ctx, c.head("content-length: 1000")+thousand())
}

func postChunked(ctx context.Context, c *caller) (string, error) {
	c.method = http.MethodPost
	return c.exchange(ctx, c.head("transfer-encoding: chunked")+"3e8\r\n"+thousand()+"\r\n0\r\n\r\n")
}

// unfinished sends 3 bytes of 100.
func unfinished(ctx context.Context, c *caller) (string, error) {
	c.method = http.MethodPost
	return c.exchange(ctx, c.head("content-length: 100")+"abc")
}

// malformed sends a request without a host.
func malformed(ctx context.Context, c *caller) (string, error) {
	return c.exchange(ctx, "GET / HTTP/1.1\r\n"+rig.TestID+": "+c.id+"\r\n\r\n")
}

// pipelined sends two requests before it reads the first response.
func pipelined(ctx context.Context, c *caller) (string, error) {
	conn, err := c.connect(ctx, c.head()+c.head())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	saw := ""
	for range 2 {
		resp, err := conn.Receive(c.verb())
		if err != nil {
			return saw, err
		}
		saw += c.read(resp) + " "
	}
	return strings.Replace(saw, "200 200 ", "200 twice", 1), nil
}

// websocket sends 40 bytes over a connection that was upgraded, waits for their
// echo and leaves.
func websocket(ctx context.Context, c *caller) (string, error) {
	conn, err := c.connect(ctx, c.head("connection: upgrade", "upgrade: websocket"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	resp, err := conn.Receive(http.MethodGet)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return c.read(resp), nil
	}
	const text = "0123456789012345678901234567890123456789"
	if err := conn.Send(text); err != nil {
		return "", err
	}
	if _, err := conn.Read(make([]byte, len(text))); err != nil {
		return "", err
	}
	return "101", conn.Close()
}
