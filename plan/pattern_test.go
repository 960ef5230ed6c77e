package plan_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

func TestMatchPattern(t *testing.T) {
	for _, row := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "org:acme", true},
		{"org:acme", "org:acme", true},
		{"org:acme", "org:acme2", false},
		{"org:acme-*", "org:acme-", true},
		{"org:acme-*", "org:acme", false},
		{"*:acme", "org:acme", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "axxbyybzzc", true},
		{"a*b*c", "acb", false},
		{"ab*ba", "aba", false},
		{"a**b", "ab", true},
		{"spiffe://example.org/ns/*/sa/*", "spiffe://example.org/ns/web/sa/front", true},
		{"spiffe://example.org/ns/*/sa/*", "spiffe://example.com/ns/web/sa/front", false},
		{"org:a.c", "org:abc", false},
	} {
		if got := plan.MatchPattern(row.pattern, row.s); got != row.want {
			t.Errorf("MatchPattern(%q, %q) = %v", row.pattern, row.s, got)
		}
	}
}

func FuzzMatchPattern(f *testing.F) {
	f.Add("a*b*c", "axxbyybzzc")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 50 || len(s) > 200 {
			return
		}
		re, err := regexp.Compile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `\z`)
		if err != nil {
			return // bytes that are not UTF-8
		}
		if got, want := plan.MatchPattern(pattern, s), re.MatchString(s); got != want {
			t.Errorf("MatchPattern(%q, %q) = %v", pattern, s, got)
		}
	})
}
