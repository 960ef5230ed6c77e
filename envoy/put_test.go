package envoy_test

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/mem"

	"github.com/meteproject/mete/envoy"
)

// option reads one HeaderValueOption by way of a message that has them.
func option(t *testing.T, b []byte) *corev3.HeaderValueOption {
	t.Helper()
	b[0] = 2<<3 | 2 // OkHttpResponse.headers
	return parse(t, b, &authv3.OkHttpResponse{}).GetHeaders()[0]
}

// Lengths around those where their own length grows by a byte.
func TestPutLengths(t *testing.T) {
	for _, around := range []int{0, 128, 16384} {
		for n := max(around-60, 0); n < around+3; n++ {
			want := strings.Repeat("v", n)
			if got := option(t, envoy.PutHeader("name", want)).GetHeader(); got.GetKey() != "name" || got.GetValue() != want {
				t.Fatalf("a value of %d bytes came out with %d", n, len(got.GetValue()))
			}
		}
	}
}

// Whatever gets into a header value, no line ends in it.
func TestPutHeaderTames(t *testing.T) {
	got := option(t, envoy.PutHeader("x", "a\r\nx-admin: 1\x00\x7f\t\u00e9")).GetHeader().GetValue()
	if want := "a??x-admin: 1??\t\u00e9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// countingPool counts what comes back.
type countingPool struct{ back int }

func (*countingPool) Get(n int) *[]byte { b := make([]byte, n); return &b }
func (p *countingPool) Put(*[]byte)     { p.back++ }

// The buffer of a check lives as long as the check, and no longer.
func TestBufferIsHeldAndFreed(t *testing.T) {
	var pool countingPool
	data := make([]byte, 2048)
	copy(data, mustMarshal(t, fullCheck(t)))
	b := mem.NewBuffer(&data, &pool)
	var c envoy.CheckCall
	c.ReadBuffer(b)
	if pool.back != 0 {
		t.Error("freed while it is read from")
	}
	c.Release()
	c.Release()
	if pool.back != 1 {
		t.Errorf("came back %d times, want once", pool.back)
	}
}
