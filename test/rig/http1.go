package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// An HTTP1 is a connection of a caller that speaks HTTP/1.1 to the letter, and may
// break it off anywhere. One goroutine may use it.
type HTTP1 struct {
	conn   *net.TCPConn
	reader *bufio.Reader
}

// DialHTTP1 connects to an address. What the connection does must be over within a
// minute or, if that comes first, by the deadline of ctx. The caller must Close it.
func DialHTTP1(ctx context.Context, address string) (*HTTP1, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is no TCP address", address), conn.Close())
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Minute)
	}
	if err := tcp.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return &HTTP1{conn: tcp, reader: bufio.NewReader(tcp)}, nil
}

// Head is the text of a request up to its body. Headers are "Name: value".
func Head(method, path, host string, headers ...string) string {
	return method + " " + path + " HTTP/1.1\r\nhost: " + host + "\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

// Send writes text as it is.
func (c *HTTP1) Send(text string) error {
	_, err := io.WriteString(c.conn, text)
	return err
}

// Receive reads a response up to its body, which must be read before the next one.
// A connection that the other side closed instead is io.EOF, or
// io.ErrUnexpectedEOF in the middle of a response.
func (c *HTTP1) Receive(method string) (*http.Response, error) {
	return http.ReadResponse(c.reader, &http.Request{Method: method})
}

// Read reads bytes after an upgrade.
func (c *HTTP1) Read(p []byte) (int, error) { return io.ReadFull(c.reader, p) }

// Close closes the connection, with FIN if all that came was read. A second Close
// does nothing.
func (c *HTTP1) Close() error {
	if err := c.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Reset closes the connection with RST.
func (c *HTTP1) Reset() error {
	linger(c.conn)
	return c.Close()
}
