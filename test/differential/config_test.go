package differential_test

import (
	"fmt"
	"strings"
)

// A config is a file of rate limits.
type config struct {
	domain string
	rules  []*rule
	mete   string // what is written under "mete", which envoyproxy/ratelimit would refuse
}

type rule struct {
	key, value                   string // value "": any
	limit                        *limit
	shadow, quota, share         bool
	detailedMetric, metricValues bool
	rules                        []*rule
}

type limit struct {
	unlimited bool
	unit      unit
	perUnit   uint32
	name      string
	replaces  []string
}

// yaml returns the file.
func (c *config) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %q\n", c.domain)
	if c.mete != "" {
		fmt.Fprintf(&b, "mete: %s\n", c.mete)
	}
	writeRules(&b, c.rules, "")
	return b.String()
}

func writeRules(b *strings.Builder, rules []*rule, indent string) {
	fmt.Fprintf(b, "%sdescriptors:\n", indent)
	for _, r := range rules {
		fmt.Fprintf(b, "%s  - key: %q\n", indent, r.key)
		line := func(format string, args ...any) { fmt.Fprintf(b, indent+"    "+format+"\n", args...) }
		if r.value != "" {
			line("value: %q", r.value)
		}
		for _, flag := range []struct {
			name string
			on   bool
		}{
			{"shadow_mode", r.shadow},
			{"quota_mode", r.quota},
			{"share_threshold", r.share},
			{"detailed_metric", r.detailedMetric},
			{"value_to_metric", r.metricValues},
		} {
			if flag.on {
				line("%s: true", flag.name)
			}
		}
		if r.limit != nil {
			line("rate_limit: {%s}", r.limit.yaml())
		}
		if len(r.rules) > 0 {
			writeRules(b, r.rules, indent+"    ")
		}
	}
}

func (l *limit) yaml() string {
	parts := []string{"unlimited: true"}
	if !l.unlimited {
		parts = []string{fmt.Sprintf("unit: %s, requests_per_unit: %d", l.unit, l.perUnit)}
	}
	if l.name != "" {
		parts = append(parts, fmt.Sprintf("name: %q", l.name))
	}
	if len(l.replaces) > 0 {
		var names []string
		for _, n := range l.replaces {
			names = append(names, fmt.Sprintf("{name: %q}", n))
		}
		parts = append(parts, "replaces: ["+strings.Join(names, ", ")+"]")
	}
	return strings.Join(parts, ", ")
}
