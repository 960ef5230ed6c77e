package authz_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

const aTrillion = "tokens: {kind: quota, amount: 1000000000000, unit: tokens, reset: {calendar: month}}"

// callsDesk is a desk whose calls reserve 4,000 tokens, and are told what they used in a
// header, or by a report where they are jobs.
func callsDesk(t *testing.T, limit string) *desk {
	t.Helper()
	return newDesk(t, callsDocs(limit)).seals()
}

func callsDocs(limit string) string {
	return app("units: {tokens: {title: tokens}}") + planDoc("free", limit) + tenantDoc("org:a", "{plan: free}") + routesDoc(`
- {name: call, match: {path: /call}, units: {tokens: {reserve: 4000, use: [{response_header: x-usage}]}}}
- {name: job, match: {path: /job}, units: {tokens: {reserve: 4000, use: [{report: true}]}}}
`)
}

// Of what an API tells, whole numbers up to the largest amount count; anything else is as
// if nothing was told, and is counted. Nothing is negative, and nothing wraps.
func TestSettle_C171_NumbersThatAnAPITells(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int64{
		"0": 0, " 12 ": 12, "+7": 7, "007": 7, "999999999999999": 999999999999999,
		"-5": -1, "1.5": -1, "1e3": -1, "100000000000000000000": -1, "18446744073709551615": -1, "9223372036854775807": -1,
		"1000000000000000": -1, "abc": -1, "12,13": -1, "12, 12": -1, "0x10": -1, "1_0": -1,
		"": -1, "+": -1, "++7": -1, "+-7": -1, "-0": -1, "+ 7": -1, "7 tokens": -1, "１２": -1, "absent": -1,
	} {
		synctest.Test(t, func(t *testing.T) {
			k := callsDesk(t, aTrillion)
			e := tells(200, "x-usage", value)
			if value == "absent" {
				e = answered(200)
			}
			settled := k.end(k.token(k.must(at("/call"), authz.Allowed)), e)
			used, bad := k.used("tokens"), k.d.Stats().BadUnits
			switch {
			case value == "absent" && (used != 4000 || bad != 0 || settled != authz.SettledAsReserved || k.d.Stats().Settled[settled] != 1):
				t.Errorf("without a number: %d used, %d bad, %q; want 4,000 as reserved", used, bad, settled.Word())
			case value != "absent" && want < 0 && (used != 4000 || bad != 1):
				t.Errorf("%q: %d used, %d bad; want the 4,000 that were reserved, and 1", value, used, bad)
			case want >= 0 && (used != want || bad != 0):
				t.Errorf("%q: %d used, %d bad; want %d", value, used, bad, want)
			}
		})
	}
}

// What cannot be counted claims nothing: the report that can be is counted, once, also
// where etcd is away at that time, and another number after it is refused.
func TestReport_C175_AReportThatFailedThenTheRightOne(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"etcd answers": false, "etcd is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := callsDesk(t, aTrillion)
				dec := k.must(at("/job"), authz.Allowed)
				k.token(dec)
				report := func(unit string, n int64) (int64, error) {
					got, err := k.d.Report(context.Background(), time.Now(), dec.ID, map[string]int64{unit: n})
					return got[unit], err
				}
				for unit, n := range map[string]int64{"gpus": 33, "tokens": -3, "requests": 1, "": 5} {
					if _, err := report(unit, n); !errors.Is(err, authz.ErrUnits) {
						t.Errorf("%d %q: %v, want that these cannot be counted", n, unit, err)
					}
				}
				if away {
					k.store.slow(time.Hour)
					time.Sleep(time.Minute)
				}
				for range 2 {
					if n, err := report("tokens", 33); n != 33 || err != nil {
						t.Errorf("33 tokens: %d, %v", n, err)
					}
				}
				if _, err := report("tokens", 44); !errors.Is(err, authz.ErrReported) || !strings.Contains(err.Error(), "33 tokens") {
					t.Errorf("44 after 33: %v", err)
				}
				time.Sleep(time.Minute)
				k.store.slow(0)
				if n := k.used("tokens"); n != 33 {
					t.Errorf("%d tokens are used, want 33", n)
				}
			})
		})
	}
}
