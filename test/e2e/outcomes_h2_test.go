package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/test/rig"
)

// send sends a request over HTTP/2 with a connection of its own.
func (c *caller) send(ctx context.Context, body string) (*http.Response, error) {
	client := rig.HTTP2()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, c.verb(), "http://"+c.target+c.where(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host = c.authority()
	for _, line := range c.headers() {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	return client.Do(req)
}

func getH2(ctx context.Context, c *caller) (string, error) {
	resp, err := c.send(ctx, "")
	if err != nil {
		return "", err
	}
	return c.read(resp), nil
}

func postH2(ctx context.Context, c *caller) (string, error) {
	c.method = http.MethodPost
	resp, err := c.send(ctx, thousand())
	if err != nil {
		return "", err
	}
	return c.read(resp), nil
}

// leaveH2 resets the stream once the API has the request.
func leaveH2(ctx context.Context, c *caller) (string, error) {
	return c.leaveH2(ctx, &c.upstream.Meetings)
}

// leaveCheckH2 does so once the question is on its way to mete.
func leaveCheckH2(ctx context.Context, c *caller) (string, error) {
	return c.leaveH2(ctx, &c.proxy.Meetings)
}

func (c *caller) leaveH2(ctx context.Context, m *rig.Meetings) (string, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	arrived := make(chan error, 1)
	go func() {
		arrived <- m.Arrived(ctx, c.id)
		leave()
	}()
	resp, err := c.send(ctx, "")
	if err == nil {
		return c.read(resp), nil
	}
	if err := <-arrived; err != nil {
		return "", err
	}
	return "left", nil
}

// leaveWithinH2 resets the stream after 35 bytes of the response.
func leaveWithinH2(ctx context.Context, c *caller) (string, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	resp, err := c.send(ctx, "")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, 35)); err != nil {
		return "", err
	}
	return fmt.Sprint(resp.StatusCode, ", left"), nil
}

// inWords names a gRPC status.
func inWords(err error) string { return "gRPC " + code.Code(status.Code(err)).String() }

// stub makes a connection of its own that stays open until the stage is stopped: who
// closes one at once takes back the RST_STREAM that is still on its way.
func (c *caller) stub() (rig.Stub, error) {
	stub, err := rig.NewStub(c.target, c.authority())
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stubs = append(c.stubs, stub)
	}
	return stub, err
}

func unary(ctx context.Context, c *caller) (string, error) {
	stub, err := c.stub()
	if err != nil {
		return "", err
	}
	return inWords(stub.Call(ctx, c.rpc(), c.pairs()...)), nil
}

// deadline is a call whose deadline passes while the API works.
func deadline(ctx context.Context, c *caller) (string, error) {
	short, cancel := context.WithTimeout(ctx, patienceOfAPI)
	defer cancel()
	saw, err := unary(short, c)
	return saw, errors.Join(err, c.upstream.Meetings.Arrived(ctx, c.id))
}

func stream(ctx context.Context, c *caller) (string, error) {
	return c.stream(ctx, func(messages rig.Messages, _ func()) (string, error) {
		err := messages.Next() // nil for a message, io.EOF after OK
		for err == nil {
			err = messages.Next()
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return inWords(err), nil
	})
}

// cancelStream cancels after two messages.
func cancelStream(ctx context.Context, c *caller) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return c.stream(ctx, func(messages rig.Messages, _ func()) (string, error) {
		err := errors.Join(messages.Next(), messages.Next())
		cancel()
		return "2 messages, left", err
	})
}

// dropStream closes the connection after two messages.
func dropStream(ctx context.Context, c *caller) (string, error) {
	return c.stream(ctx, func(messages rig.Messages, drop func()) (string, error) {
		err := errors.Join(messages.Next(), messages.Next())
		drop()
		return "2 messages, left", err
	})
}

func (c *caller) stream(ctx context.Context, then func(messages rig.Messages, drop func()) (string, error)) (string, error) {
	stub, err := c.stub()
	if err != nil {
		return "", err
	}
	messages, err := stub.Stream(ctx, c.rpc(), c.pairs()...)
	if err != nil {
		return "", err
	}
	return then(messages, func() { _ = stub.Close() })
}
