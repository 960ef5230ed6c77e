package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/meteproject/mete/test/rig"
)

// leave closes the connection once the API has the request.
func leave(ctx context.Context, c *caller) (string, error) {
	return c.leave(ctx, c.head(), &c.upstream.Meetings, (*rig.HTTP1).Close)
}

// leaveByReset does so by RST.
func leaveByReset(ctx context.Context, c *caller) (string, error) {
	return c.leave(ctx, c.head(), &c.upstream.Meetings, (*rig.HTTP1).Reset)
}

// leaveUpload does so with 1,000 bytes of 100,000 sent.
func leaveUpload(ctx context.Context, c *caller) (string, error) {
	c.method = http.MethodPost
	return c.leave(ctx, c.head("content-length: 100000")+thousand(), &c.upstream.Meetings, (*rig.HTTP1).Close)
}

// leaveContinue does so with a body that the server is asked for first.
func leaveContinue(ctx context.Context, c *caller) (string, error) {
	c.method = http.MethodPost
	return c.leave(ctx, c.head("content-length: 1000", "expect: 100-continue")+thousand(), &c.upstream.Meetings, (*rig.HTTP1).Close)
}

// leaveCheck does so once the question is on its way to mete.
func leaveCheck(ctx context.Context, c *caller) (string, error) {
	return c.leave(ctx, c.head(), &c.proxy.Meetings, (*rig.HTTP1).Close)
}

func (c *caller) leave(ctx context.Context, text string, m *rig.Meetings, away func(*rig.HTTP1) error) (string, error) {
	conn, err := c.connect(ctx, text)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := m.Arrived(ctx, c.id); err != nil {
		return "", err
	}
	return "left", away(conn)
}

// leaveWithin closes the connection after 35 bytes of the response's body.
func leaveWithin(ctx context.Context, c *caller) (string, error) { return c.leaveAfter(ctx, 35) }

// leaveFlood does so after a million.
func leaveFlood(ctx context.Context, c *caller) (string, error) { return c.leaveAfter(ctx, 1_000_000) }

func (c *caller) leaveAfter(ctx context.Context, n int64) (string, error) {
	conn, err := c.connect(ctx, c.head())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	resp, err := conn.Receive(c.verb())
	if err != nil {
		return "", err
	}
	if _, err := io.CopyN(io.Discard, resp.Body, n); err != nil {
		return "", err
	}
	return fmt.Sprint(resp.StatusCode, ", left"), conn.Close()
}
