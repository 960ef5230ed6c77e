package envoy_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// A fakeStream is the server's side of a log stream, with fake time.
type fakeStream struct {
	grpc.ServerStream
	s     *envoy.Server
	in    chan []byte
	ended chan struct{}   // as gRPC does once the handler has returned
	ctx   context.Context //nolint:containedctx // it is the stream's own
}

func (f *fakeStream) RecvMsg(m any) error {
	select {
	case b, ok := <-f.in:
		return f.received(b, ok, m)
	default: // what has arrived comes before the end
	}
	select {
	case b, ok := <-f.in:
		return f.received(b, ok, m)
	case <-f.ended:
		return status.Error(codes.Canceled, "the stream is over")
	}
}

func (f *fakeStream) received(b []byte, ok bool, m any) error {
	if !ok {
		return io.EOF
	}
	return envoy.NewCodec(f.s).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
}

func (*fakeStream) SendMsg(any) error          { return nil }
func (f *fakeStream) Context() context.Context { return f.ctx }

// A bench is one log stream on a server in a bubble of fake time.
type bench struct {
	t       *testing.T
	set     *settler
	s       *envoy.Server
	closing chan struct{}
	stream  *fakeStream
	done    chan error
	begin   time.Time
}

func newBench(t *testing.T, o envoy.Options) *bench {
	t.Helper()
	b := &bench{t: t, set: &settler{}, closing: make(chan struct{}), done: make(chan error, 1), begin: time.Now()}
	o.Decider, o.Settler, o.Now, o.Closing = always(authz.Allowed), b.set, time.Now, b.closing
	b.s = unserved(t, o)
	return b
}

func (b *bench) open() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.stream = &fakeStream{s: b.s, in: make(chan []byte, 100), ended: make(chan struct{}), ctx: ctx}
	go func() {
		err := envoy.LogHandler(b.s)(b.stream)
		close(b.stream.ended)
		cancel()
		b.done <- err
	}()
	synctest.Wait()
}

func (b *bench) send(tokens ...string) {
	for _, token := range tokens {
		b.stream.in <- mustMarshal(b.t, httpLogs(numbered(b.t, token)))
	}
}

// over waits for the end of the stream and tells when that was.
func (b *bench) over() time.Duration {
	b.t.Helper()
	if err := <-b.done; err != nil {
		b.t.Errorf("ended with %v", err)
	}
	at := time.Since(b.begin)
	envoy.Readers(b.s)
	return at
}

func (b *bench) goesOn() {
	b.t.Helper()
	synctest.Wait()
	select {
	case err := <-b.done:
		b.t.Fatalf("ended after %v: %v", time.Since(b.begin), err)
	default:
	}
}

func (b *bench) want(tokens ...string) {
	b.t.Helper()
	if got := b.set.tokens(); !slices.Equal(got, tokens) {
		b.t.Errorf("settled %q, want %q", got, tokens)
	}
}

func TestLogStream_C135_EndsRightAfterABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{MaxConnectionAge: -1})
		b.open()
		b.send("1")
		time.Sleep(time.Hour)
		b.goesOn()
		close(b.closing)
		time.Sleep(2900 * time.Millisecond)
		b.goesOn() // nothing has come since
		b.send("2")
		if at, want := b.over(), time.Hour+2900*time.Millisecond+envoy.LogLinger; at != want {
			t.Errorf("ended after %v, want %v", at, want)
		}
		b.want("1", "2")
	})
}

// A process that has just begun knows no key yet: what came too early waits.
func TestLogStream_A26_C135_IsReadOnceItCanBeSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		settling := make(chan struct{})
		b := newBench(t, envoy.Options{MaxConnectionAge: -1, Settling: settling})
		b.open()
		b.send("1", "2")
		time.Sleep(time.Minute)
		b.goesOn()
		b.want()
		close(settling)
		synctest.Wait()
		b.want("1", "2")
		close(b.closing)
		b.over()
	})
}

// One that ends before is not kept by its log streams.
func TestLogStream_C135_EndsThoughItWasNeverRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{Settling: make(chan struct{})})
		b.open()
		b.send("1")
		close(b.closing)
		if at := b.over(); at != 3*time.Second {
			t.Errorf("ended after %v", at)
		}
		b.want()
	})
}

// Batches that have arrived already are not left behind.
func TestLogStream_C135_TakesAllThatHasArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{MaxConnectionAge: -1})
		slow := make(chan struct{})
		b.set.settle = func(string, *authz.Ending) authz.Settled { <-slow; return authz.SettledMore }
		b.open()
		close(b.closing)
		b.send("1", "2", "3")
		for range 3 {
			time.Sleep(10 * envoy.LogLinger) // the reader is behind
			b.goesOn()
			slow <- struct{}{}
		}
		b.over()
		b.want("1", "2", "3")
	})
}

func TestLogStream_C135_SilentStreamEndsAfterItsGrace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ set, want time.Duration }{{0, 3 * time.Second}, {time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, envoy.Options{LogStreamGrace: tt.set})
			b.open()
			close(b.closing)
			if at := b.over(); at != tt.want {
				t.Errorf("ended after %v, want %v", at, tt.want)
			}
		})
	}
}

// A stream that begins while the server stops gives its first batch.
func TestLogStream_C135_NewStreamWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{})
		close(b.closing)
		b.open()
		b.goesOn()
		b.send("1")
		if at := b.over(); at != envoy.LogLinger {
			t.Errorf("ended after %v", at)
		}
		b.want("1")
	})
}

// A connection is cut off some time after its age: streams end by themselves before,
// after a batch.
func TestLogStream_C135_EndsBeforeItsConnectionIsCutOff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o    envoy.Options
		want time.Duration
	}{
		{envoy.Options{}, 30 * time.Second},
		{envoy.Options{MaxConnectionAge: time.Hour, MaxConnectionGrace: 10 * time.Second}, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, tt.o)
			b.open()
			b.send("1")
			time.Sleep(tt.want - 1)
			b.goesOn()
			time.Sleep(time.Minute)
			b.goesOn() // there was no batch to end after
			b.send("2")
			if at, want := b.over(), tt.want-1+time.Minute+envoy.LogLinger; at != want {
				t.Errorf("ended after %v, want %v", at, want)
			}
			b.want("1", "2")
		})
	}
}

// What was received is settled before the process may end, even if its stream is over.
func TestLogStream_C135_GracefulStopWaitsForSettlements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{})
		slow := make(chan struct{})
		b.set.settle = func(string, *authz.Ending) authz.Settled { <-slow; return authz.SettledMore }
		b.open()
		b.send("1")
		close(b.closing)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		stopped := make(chan struct{})
		go func() { defer close(stopped); b.s.GracefulStop() }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stopped with an entry that is not settled")
		default:
		}
		close(slow)
		<-stopped
		b.want("1")
	})
}

func TestLogStream_EndsWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{})
		b.open()
		b.send("1")
		close(b.stream.in)
		b.over()
		b.want("1")
		if n := b.s.Stats().Logs.Streams; n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}
