package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/journal"
)

// BenchmarkSealKept is what sealing costs where tokens are kept beyond the end of the
// process, to be compared with BenchmarkSettlement/seal.
func BenchmarkSealKept(b *testing.B) {
	j, _, err := journal.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	kept, full, err := j.OpenReserved()
	if err != nil || full != nil {
		b.Fatal(err, full)
	}
	d := authz.New(authz.Config{Keeper: runKeeper(b, nil), Now: time.Now, Process: 1, Keep: kept.Keep})
	d.SetSnapshot(catalog(b, 1).Snapshot())
	d.SetSeals(authz.SealKey{ID: 1, Key: [16]byte{1}}, nil)
	req := &authz.Request{Method: "GET", Path: "/v1/items/7", Headers: []authz.Field{{Name: "x-api-key", Value: key(0)}}}
	dec := new(authz.Decision)
	dec.Reset()
	d.Decide(context.Background(), time.Now(), req, dec)
	if !dec.Outcome.Admits() {
		b.Fatal(dec.Outcome.Word(), dec.Why)
	}
	buf, now := make([]byte, 0, 1024), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		buf = d.Seal(buf[:0], now, dec, nil)
	}
}

// BenchmarkSettlement measures what a settlement costs beside the decision: sealing the
// token, then opening it, measuring and settling. Every answer was a failure, so that
// all is given back.
func BenchmarkSettlement(b *testing.B) {
	d := authz.New(authz.Config{Keeper: runKeeper(b, nil), Now: time.Now, Process: 1})
	d.SetSnapshot(catalog(b, 1).Snapshot())
	d.SetSeals(authz.SealKey{ID: 1, Key: [16]byte{1}}, nil)
	req := &authz.Request{Method: "GET", Path: "/v1/items/7", Headers: []authz.Field{{Name: "x-api-key", Value: key(0)}}}
	end := authz.Ending{Status: 503, GRPC: -1}
	decide := func(dec *authz.Decision) {
		dec.Reset()
		d.Decide(context.Background(), time.Now(), req, dec)
		if !dec.Outcome.Admits() {
			b.Fatal(dec.Outcome.Word(), dec.Why)
		}
	}
	b.Run("seal", func(b *testing.B) {
		dec := new(authz.Decision)
		decide(dec)
		buf, now := make([]byte, 0, 1024), time.Now()
		b.ReportAllocs()
		for b.Loop() {
			buf = d.Seal(buf[:0], now, dec, nil)
		}
	})
	b.Run("settle", func(b *testing.B) {
		var dec authz.Decision
		var r authz.Reservation
		var m authz.Measured
		tokens := make([]string, b.N)
		for i := range tokens {
			decide(&dec)
			tokens[i] = string(d.Seal(nil, time.Now(), &dec, nil))
		}
		now := time.Now()
		b.ReportAllocs()
		b.ResetTimer()
		for i := range tokens {
			if bad := d.Open(tokens[i], &r); bad != 0 {
				b.Fatal(bad.Word())
			}
			d.Measure(&r, &end, &m)
			if got := d.Settle(now, &r, &m); got != authz.SettledFree {
				b.Fatal(got.Word())
			}
		}
	})
}
