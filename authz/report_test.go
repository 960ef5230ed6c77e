package authz_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

func TestReport_P64_A37_A40_TheAppSays(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	report := func(k *desk, dec *authz.Decision, n int64) string {
		got, err := k.d.Report(ctx, time.Now(), dec.ID, map[string]int64{"tokens": n})
		return fmt.Sprint(got, err)
	}
	for name, c := range map[string]struct {
		play func(k *desk, dec *authz.Decision, token string)
		want int64
	}{
		"before the log": {func(k *desk, dec *authz.Decision, token string) {
			report(k, dec, 42)
			k.end(token, answered(200))
		}, 42},
		"after the log": {func(k *desk, dec *authz.Decision, token string) {
			k.end(token, answered(200))
			report(k, dec, 142)
		}, 142},
		"without a log": {func(k *desk, dec *authz.Decision, _ string) { report(k, dec, 7) }, 7},
		"of a failure": {func(k *desk, dec *authz.Decision, token string) {
			k.end(token, answered(500))
			report(k, dec, 9)
		}, 9},
		"of a failure, before the log": {func(k *desk, dec *authz.Decision, token string) {
			report(k, dec, 9)
			k.end(token, answered(500))
		}, 9},
		"the header was first": {func(k *desk, dec *authz.Decision, token string) {
			k.end(token, tells(200, "x-usage", "5"))
			report(k, dec, 9)
		}, 5},
		"the header comes later": {func(k *desk, dec *authz.Decision, token string) {
			report(k, dec, 9)
			k.end(token, tells(200, "x-usage", "5"))
		}, 5},
		"twice": {func(k *desk, dec *authz.Decision, _ string) {
			if a, b := report(k, dec, 9), report(k, dec, 9); a != b || a != "map[tokens:9] <nil>" {
				k.t.Errorf("first %s, then %s", a, b)
			}
		}, 9},
		"two numbers": {func(k *desk, dec *authz.Decision, _ string) {
			report(k, dec, 9)
			if got := report(k, dec, 10); !strings.Contains(got, "reported before: 9 tokens") {
				k.t.Error(got)
			}
		}, 9},
		"never": {func(*desk, *authz.Decision, string) {}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, "")
				dec := k.must(at("/job"), authz.Allowed)
				c.play(k, dec, k.token(dec))
				if got := k.used("tokens"); got != c.want {
					t.Errorf("%d tokens are used, want %d", got, c.want)
				}
			})
		})
	}
}

func TestExtend_A25_P64_MoreOfTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := tokensDesk(t, "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: month}}")
		ctx := context.Background()
		dec := k.must(at("/job"), authz.Allowed)
		token := k.token(dec)
		got, err := k.d.Extend(ctx, time.Now(), dec.ID, map[string]int64{"tokens": 400})
		if err != nil || got["tokens"] != 500 {
			t.Fatalf("extended to %v, %v, want 500", got, err)
		}
		if _, err := k.d.Extend(ctx, time.Now(), dec.ID, map[string]int64{"tokens": 600}); err == nil || !strings.Contains(err.Error(), "limit tokens of org:a") {
			t.Errorf("600 more than 500 of 1000: %v", err)
		}
		if _, err := k.d.Extend(ctx, time.Now(), dec.ID, map[string]int64{"gpus": 1}); err == nil || !strings.Contains(err.Error(), `no reports of "gpus"`) {
			t.Errorf("another unit: %v", err)
		}
		k.end(token, answered(200))
		if got := k.accountOf("org:a", "tokens").Used(); got > 500 {
			t.Errorf("%d are used", got)
		}
		if _, err := k.d.Report(ctx, time.Now(), dec.ID, map[string]int64{"tokens": 450}); err != nil {
			t.Error(err)
		}
		if got := k.used("tokens"); got != 450 {
			t.Errorf("%d are used, want 450", got)
		}
		if _, err := k.d.Extend(ctx, time.Now(), dec.ID, map[string]int64{"tokens": 1}); err == nil {
			t.Error("extended after the report")
		}
	})
}

func TestReport_P64_UnknownDecisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		chat := k.must(at("/chat"), authz.Allowed) // its route takes no reports
		k.token(chat)
		for _, id := range []authz.ID{chat.ID, {}, authz.NewID(time.Now())} {
			if _, err := k.d.Report(context.Background(), time.Now(), id, map[string]int64{"tokens": 1}); err == nil {
				t.Errorf("%s is known", id)
			}
		}
		job := k.must(at("/job"), authz.Allowed)
		k.token(job)
		time.Sleep(25 * time.Hour)
		k.token(k.must(at("/job"), authz.Allowed))
		if _, err := k.d.Report(context.Background(), time.Now(), job.ID, map[string]int64{"tokens": 1}); err == nil {
			t.Error("a report is taken after a day")
		}
	})
}
