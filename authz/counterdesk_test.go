package authz_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// askOf reads "org=a route=list x5": entries, and how many hits (1 unless said). "x0"
// looks, "-3" gives back, "of 5/minute" is an override, "?" cannot be read.
func askOf(text string) authz.DescriptorAsk {
	ask := authz.DescriptorAsk{Hits: 1}
	override, of := false, ""
	for word := range strings.FieldsSeq(text) {
		key, value, entry := strings.Cut(word, "=")
		n, err := strconv.ParseInt(strings.TrimLeft(word, "x-"), 10, 64)
		switch {
		case override:
			of = word
		case entry:
			ask.Entries = append(ask.Entries, plan.DescriptorEntry{Key: key, Value: value})
		case word == "?":
			ask.Unreadable = true
		case word == "of":
			override = true
		case err == nil:
			ask.Hits, ask.Refund = n, word[0] == '-'
		default:
			panic(text)
		}
	}
	if override {
		amount, unit, _ := strings.Cut(of, "/")
		n, _ := strconv.ParseInt(amount, 10, 64)
		ask.HasOverride, ask.Override = true, plan.DescriptorLimit{Amount: n, Multiplier: 1}
		for u := plan.UnitSecond; u <= plan.UnitYear; u++ {
			if u.String() == unit {
				ask.Override.Unit = u
			}
		}
	}
	return ask
}

// count counts descriptors in the domain edge.
func (k *desk) count(texts ...string) *authz.Count {
	asks := make([]authz.DescriptorAsk, 0, len(texts))
	for _, text := range texts {
		asks = append(asks, askOf(text))
	}
	c := new(authz.Count)
	c.Reset()
	k.d.CountDescriptors(context.Background(), time.Now(), "edge", asks, false, c)
	return c
}

// counted is the outcome and for each descriptor "OK", "OVER" or "shadow" and what is left.
func counted(c *authz.Count) string {
	var b strings.Builder
	b.WriteString(c.Outcome.Word())
	for i := range c.Items {
		it := &c.Items[i]
		word := " OK"
		switch {
		case it.Over:
			word = " OVER"
		case it.Shadowed:
			word = " shadow"
		case it.Unlimited:
			word = " unlimited"
		case it.Replaced:
			word = " replaced"
		}
		b.WriteString(word)
		if it.State.Limit != nil {
			fmt.Fprintf(&b, ":%d", it.State.Left)
		}
	}
	return b.String()
}

func (k *desk) wantCount(want string, texts ...string) {
	k.t.Helper()
	if got := counted(k.count(texts...)); got != want {
		k.t.Errorf("%q: %s, want %s", texts, got, want)
	}
}

// edge is a domain with rules, one a line: "org=a route 4/minute shadow".
func edge(settings string, rules ...string) string {
	b := &strings.Builder{}
	b.WriteString("domain: edge\n")
	if settings != "" {
		b.WriteString("mete: {" + settings + "}\n")
	}
	b.WriteString("descriptors:\n")
	for _, rule := range rules {
		b.WriteString("  - " + rule + "\n")
	}
	return b.String()
}

func inBubble(t *testing.T, docs string, f func(t *testing.T, k *desk)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newDesk(t, docs)) })
}

func limited(key, unit string, n int) string {
	return fmt.Sprintf("{key: %s, rate_limit: {unit: %s, requests_per_unit: %d}}", key, unit, n)
}
