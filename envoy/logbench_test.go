package envoy_test

import (
	"bytes"
	"testing"
	"time"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// A message of many parts costs no memory that grows with it.
func TestAccessLog_MessagesCostNoMemory(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty entries": field(2, bytes.Repeat(field(1), 64<<10)...),
		"empty lists":   bytes.Repeat(field(2), 64<<10),
		"headers":       field(2, field(1, field(4, bytes.Repeat(field(4), 64<<10)...)...)...),
		"metadata":      field(2, field(1, field(1, bytes.Repeat(field(17), 64<<10)...)...)...),
	} {
		s := unserved(t, envoy.Options{Settler: &settler{}})
		reader := envoy.NewLogReader(s)
		reader.Take(mem.SliceBuffer(b))
		if n := testing.AllocsPerRun(1, func() { reader.Take(mem.SliceBuffer(b)) }); n > 50 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func logBatch(tb testing.TB, n int) []byte {
	tb.Helper()
	es := make([]*logv3.HTTPAccessLogEntry, n)
	for i := range es {
		es[i] = typicalEntry(tb)
	}
	return mustMarshal(tb, httpLogs(es...))
}

// freely settles without remembering, and looks where a settler does.
type freely struct{}

func (freely) Settle(_ time.Time, _ string, e *authz.Ending) authz.Settled {
	if _, ok := e.Response.Header("x-usage-tokens"); !ok {
		panic("no usage")
	}
	return authz.SettledLess
}

func (freely) SettleUnits(time.Time, string, string, int64, bool) authz.Settled {
	return authz.SettledLess
}

// BenchmarkAccessLog is a batch of 25 entries, the most that Envoy sends at once
// unless told otherwise.
func BenchmarkAccessLog(b *testing.B) {
	const entries = 25
	in := logBatch(b, entries)
	perEntry := func(b *testing.B) {
		b.Helper()
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/entries, "ns/entry")
		b.ReportMetric(float64(len(in))/entries, "bytes/entry")
	}
	b.Run("mete", func(b *testing.B) {
		reader := envoy.NewLogReader(unserved(b, envoy.Options{Settler: freely{}}))
		buffer := mem.Buffer(mem.SliceBuffer(in))
		b.SetBytes(int64(len(in)))
		b.ReportAllocs()
		for b.Loop() {
			reader.Take(buffer)
		}
		perEntry(b)
	})
	b.Run("generated types", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		b.ReportAllocs()
		for b.Loop() {
			var m accesslogv3.StreamAccessLogsMessage
			if err := proto.Unmarshal(in, &m); err != nil {
				b.Fatal(err)
			}
		}
		perEntry(b)
	})
}

// An entry costs no allocation in the steady state.
func TestAccessLog_AllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	reader := envoy.NewLogReader(unserved(t, envoy.Options{Settler: freely{}}))
	buffer := mem.Buffer(mem.SliceBuffer(logBatch(t, 25)))
	reader.Take(buffer)
	if n := testing.AllocsPerRun(20, func() { reader.Take(buffer) }); n != 0 {
		t.Errorf("%v allocations for 25 entries", n)
	}
}
