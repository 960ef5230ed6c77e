package rig_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/test/rig"
)

func upstream(t *testing.T) *rig.Upstream {
	t.Helper()
	u, err := rig.StartUpstream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Stop(); err != nil {
			t.Error(err)
		}
	})
	return u
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// An Upstream breaks off over HTTP/1.1 and HTTP/2 as it is asked, after as many bytes.
func TestUpstream_Acts(t *testing.T) {
	t.Parallel()
	u := upstream(t)
	for _, row := range []struct {
		act, read string
		status    int  // 0: no response
		broken    bool // the body ends before its end
		only1     bool
	}{
		{act: rig.ActStatus + "204", status: http.StatusNoContent},
		{act: rig.ActStatus + "404", status: http.StatusNotFound, read: "hello"},
		{act: rig.ActStatus + "304", status: http.StatusNotModified},
		{act: rig.ActBytes + "7", status: http.StatusOK, read: "xxxxxxx"},
		{act: rig.ActGone},
		{act: rig.ActReset},
		{act: rig.ActGarbage, only1: true},
		{act: rig.ActPartThenGone, status: http.StatusOK, read: "0123456789", broken: true},
		{act: rig.ActPartThenReset, status: http.StatusOK, read: "0123456789", broken: true, only1: true},
		{act: rig.ActSlow, status: http.StatusOK, read: strings.Repeat("0123456789", 8)},
		{act: "nonsense", status: http.StatusNotImplemented, read: "this upstream has no act nonsense\n"},
	} {
		for proto, ask := range map[string]func(*testing.T, *rig.Upstream, string, string) (*http.Response, error){"1.1": by1, "2": by2} {
			if row.only1 && proto == "2" {
				continue
			}
			t.Run(row.act+"/"+proto, func(t *testing.T) {
				t.Parallel()
				id := row.act + proto
				u.Meetings.Release(id)
				resp, err := ask(t, u, row.act, id)
				if row.status == 0 {
					if err == nil {
						t.Fatalf("got %s, want no response", resp.Status)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != row.status || string(body) != row.read || (err != nil) != row.broken {
					t.Errorf("got %d %q %v, want %d %q, broken off: %v", resp.StatusCode, body, err, row.status, row.read, row.broken)
				}
				if row.broken && resp.Header.Get(rig.UsageUnits) != "7" {
					t.Errorf("%s = %q, want 7", rig.UsageUnits, resp.Header.Get(rig.UsageUnits))
				}
			})
		}
	}
}

func by1(t *testing.T, u *rig.Upstream, act, id string) (*http.Response, error) {
	t.Helper()
	conn, err := rig.DialHTTP1(within(t), u.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.Send(rig.Head(http.MethodGet, "/", "api.test", rig.TestAct+": "+act, rig.TestID+": "+id, rig.TestUse+": 7")); err != nil {
		t.Fatal(err)
	}
	return conn.Receive(http.MethodGet)
}

func by2(t *testing.T, u *rig.Upstream, act, id string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+u.Address+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{rig.TestAct: act, rig.TestID: id, rig.TestUse: "7"} {
		req.Header.Set(name, value)
	}
	client := rig.HTTP2()
	t.Cleanup(client.CloseIdleConnections)
	return client.Do(req)
}

// What waits is told apart: the API waits for as long as the caller does, and the
// caller knows that it does.
func TestUpstream_SilentUntilTheCallerLeaves(t *testing.T) {
	t.Parallel()
	u := upstream(t)
	ctx, leave := context.WithCancel(within(t))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+u.Address+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(rig.TestAct, rig.ActSilent)
	req.Header.Set(rig.TestID, "silent")
	go func() {
		if err := u.Meetings.Arrived(ctx, "silent"); err != nil {
			t.Error(err)
		}
		leave()
	}()
	client := rig.HTTP2()
	defer client.CloseIdleConnections()
	if resp, err := client.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v; want no response", resp, err)
	}
}

// A connection that is upgraded echoes.
func TestUpstream_Upgrade(t *testing.T) {
	t.Parallel()
	u := upstream(t)
	conn, err := rig.DialHTTP1(within(t), u.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	head := rig.Head(http.MethodGet, "/", "api.test", rig.TestAct+": "+rig.ActUpgrade, "connection: upgrade", "upgrade: websocket")
	if err := conn.Send(head); err != nil {
		t.Fatal(err)
	}
	if resp, err := conn.Receive(http.MethodGet); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v; want 101", resp, err)
	}
	echo := make([]byte, 4)
	if err := conn.Send("ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(echo); err != nil || string(echo) != "ping" {
		t.Errorf("echo = %q, %v", echo, err)
	}
}

// gRPC calls end as they are asked, by a real client's account.
func TestUpstream_Calls(t *testing.T) {
	t.Parallel()
	u := upstream(t)
	stub, err := rig.NewStub(u.Address, "api.test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stub.Close() }()
	for act, want := range map[string]codes.Code{
		rig.ActCallOK: codes.OK, rig.ActCallFails: codes.NotFound, rig.ActCallRefused: codes.NotFound,
	} {
		if err := stub.Call(within(t), "/some.Service/Call", rig.TestAct, act, rig.TestID, act); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", act, err, want)
		}
	}
	for try, want := range []codes.Code{codes.Unavailable, codes.OK} {
		err := stub.Call(within(t), "/some.Service/Call", rig.TestAct, rig.ActCallFailsOnce, rig.TestID, "once")
		if status.Code(err) != want {
			t.Errorf("try %d: %v, want %v", try, err, want)
		}
	}
	messages, err := stub.Stream(within(t), "/some.Service/Call", rig.TestAct, rig.ActCallStream, rig.TestID, "stream")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := messages.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := messages.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after three messages: %v, want the end", err)
	}
}
