package servers_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const startWithin = 30 * time.Second // each takes a second on an idle machine

// folder returns one for sockets: their paths must be short.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mete-servers-") //nolint:usetesting // t.TempDir has the name of the test in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// start runs a program until the test ends, and returns once it listens on a unix socket.
func start(t *testing.T, socket, name string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var output bytes.Buffer // read only once exited is closed
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(5 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children too
			<-exited
		}
		if t.Failed() && output.Len() > 0 {
			t.Logf("%s says:\n%s", filepath.Base(name), output.String())
		}
	})
	deadline := time.After(startWithin)
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-exited:
			t.Fatalf("%s %s ended: %s", name, strings.Join(args, " "), output.String())
		case <-deadline:
			t.Fatalf("%s does not listen on %s within %s", name, socket, startWithin)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A client sends request targets as they are.
type client struct {
	network, address string
	host             string // "h" unless set

	conn   net.Conn
	reader *bufio.Reader
}

// get returns the route that a server says served a target, "" if it served none: it
// refused or redirected. headers are "Name: value".
func (c *client) get(ctx context.Context, target string, headers ...string) (*http.Response, error) {
	reused := c.conn != nil
	resp, err := c.try(ctx, target, headers)
	if err != nil && reused { // the server had enough of the connection
		c.close()
		resp, err = c.try(ctx, target, headers)
	}
	if err != nil {
		c.close()
		if ctx.Err() != nil || c.network == "" {
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}}, nil // it closed without a word
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.Close || err != nil {
		c.close()
	}
	return resp, nil
}

func (c *client) try(ctx context.Context, target string, headers []string) (*http.Response, error) {
	if c.conn == nil {
		conn, err := new(net.Dialer).DialContext(ctx, c.network, c.address)
		if err != nil {
			c.network = ""
			return nil, err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(startWithin)); err != nil {
		return nil, err
	}
	text := "GET " + target + " HTTP/1.1\r\nHost: " + cmp.Or(c.host, "h") + "\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
	if _, err := io.WriteString(c.conn, text); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.network = ""
	}
	return resp, err
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
