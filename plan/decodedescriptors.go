package plan

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// MaxRateLimits is how many bytes a document of descriptors may have. They are
// written by programs too. What is in force of one is stored as JSON, in which each byte
// may take two, and etcd takes 1.5 MiB in one request unless it is told otherwise.
const MaxRateLimits = 700 << 10

// A foreigner is a document that is none of ours by its keys.
type foreigner int

const (
	oneOfOurs foreigner = iota
	descriptorFile
	envoyConfiguration
)

// familyOf tells by the keys of a document without apiVersion, kind, metadata and
// spec whose it is. What says nothing is taken for one of ours.
func familyOf(keys []string) foreigner {
	family := oneOfOurs
	for _, key := range keys {
		switch strings.ToLower(key) {
		case "apiversion", "kind", "metadata", "spec":
			return oneOfOurs
		case "domain", "descriptors", "descriptor":
			family = descriptorFile
		case "typed_config", "@type", "static_resources", "dynamic_resources", "access_log", "http_filters",
			"filter_chains", "virtual_hosts", "route_config", "rate_limits", "listeners", "clusters", "resources":
			if family == oneOfOurs {
				family = envoyConfiguration
			}
		}
	}
	return family
}

// family is familyOf the keys of n; a list, a scalar and nil have none.
func (n *node) family() foreigner {
	if n == nil || n.kind != mapNode {
		return oneOfOurs
	}
	keys := make([]string, 0, 8)
	for _, k := range n.keys {
		keys = append(keys, k.text)
	}
	return familyOf(keys)
}

// rateLimits reads a document of descriptors.
func (r *reader) rateLimits(n *node) *RateLimits {
	l := &RateLimits{File: r.file, index: r.index, at: r.inFile(n.pos)}
	o := r.object(n, "")
	above := ""
	if domain := o.require("domain", "the domain that Envoy's rate limit filter names"); domain != nil {
		l.at = r.inFile(domain.pos)
		if l.Domain = o.word(domain, "domain"); l.Domain != "" {
			above = label(l.Domain) + " / "
		}
	}
	if list := o.optional("descriptors"); list != nil {
		l.Rules = r.descriptors(list, "descriptors", above)
	}
	if settings := o.optional("mete"); settings != nil {
		l.Settings = o.object(settings, "mete").domainSettings()
		l.settings, l.settingsFile = r.inFile(settings.pos), r.file
	}
	o.optional("name") // of a gateway's own object; envoyproxy/ratelimit passes over it, too
	o.done()
	return l
}

func (r *reader) inFile(at pos) pos { return pos{at.line + r.lines, at.col} }

// descriptors reads the rules of one level; above is the beginning of their names.
func (r *reader) descriptors(n *node, path, above string) []DescriptorRule {
	if n.kind != listNode {
		r.fail(n, path, "%s is not a list; write - key: KEY for each descriptor", n.shown())
		return nil
	}
	rules := make([]DescriptorRule, 0, len(n.items))
	first := make(map[DescriptorSpot]int, len(n.items))
	r.elements(n, path, func(item *node, path string) {
		from := len(r.problems)
		rule := r.descriptor(item, path, above)
		switch line, twice := first[rule.Spot()]; {
		case r.misreadSpot(from, path): // what it is meant to be is not known
		case twice && rule.Key != "":
			r.fail(item, path, "is written twice at this level, first in line %d; keep one", line)
		default:
			first[rule.Spot()] = rule.at.line
		}
		r.nameRule(from, path, rule.Path)
		rules = append(rules, rule)
	})
	return rules
}

// misreadSpot reports whether one of the problems since from is of what tells the rule at
// path from the others of its level.
func (r *reader) misreadSpot(from int, path string) bool {
	spot := []string{join(path, "key"), join(path, "value"), join(path, "regex"), join(path, "when")}
	return slices.ContainsFunc(r.problems[from:], func(p Problem) bool { return !p.Warning && slices.Contains(spot, p.Path) })
}

// nameRule writes the name of a rule for the path that leads to it, which nobody
// wants to count: "edge / org=acme: rate_limit.unit".
func (r *reader) nameRule(from int, path, name string) {
	for i := range r.problems[from:] {
		p := &r.problems[from+i]
		rest, ok := strings.CutPrefix(p.Path, path)
		if !ok {
			continue
		}
		p.Path = name
		if rest = strings.TrimPrefix(rest, "."); rest != "" {
			p.Path += ": " + rest
		}
	}
}

func (r *reader) descriptor(n *node, path, above string) DescriptorRule {
	o := r.object(n, path)
	o.foreign = inLimit()
	rule := DescriptorRule{file: r.file, at: r.inFile(n.pos)}
	if key := o.require("key", "the key of a descriptor's entry"); key != nil {
		rule.Key = o.word(key, "key")
	}
	value := o.optional("value")
	if value != nil {
		rule.Value, _ = r.plainText(value, o.at("value"))
	}
	o.regex(&rule, value)
	o.condition(&rule)
	rule.Path = above + rule.label(path)
	o.descriptorFlags(&rule)
	if limit := o.optional("rate_limit"); limit != nil {
		rule.Limit = o.object(limit, o.at("rate_limit")).descriptorLimit()
	}
	if m := o.optional("metadata"); m != nil {
		rule.Metadata = r.anyMap(m, o.at("metadata"))
	}
	if list := o.optional("descriptors"); list != nil {
		rule.Rules = r.descriptors(list, o.at("descriptors"), rule.Path+" / ")
	}
	o.done()
	if strings.Contains(rule.Key, "*") && rule.Value != rule.Key {
		o.warn(n, o.at("key"), "* stands for itself in a key; write a pattern as the value")
	}
	return rule
}

// descriptorFlags reads what is true or false of a rule.
func (o *object) descriptorFlags(rule *DescriptorRule) {
	rule.Shadow, rule.QuotaMode = o.flag("shadow_mode"), o.flag("quota_mode")
	rule.DetailedMetric, rule.ValueToMetric = o.flag("detailed_metric"), o.flag("value_to_metric")
	rule.ShareThreshold = o.flag("share_threshold")
	if rule.ShareThreshold && rule.Regex == "" && !strings.Contains(rule.Value, "*") {
		o.fail(o.field("share_threshold"), o.at("share_threshold"), "needs a regex, or a value with * in it, whose matches share one counter; write one or leave it out")
	}
	if o.optional("rate_limit") != nil {
		return
	}
	for _, name := range []string{"shadow_mode", "quota_mode", "detailed_metric"} {
		if o.flag(name) {
			o.warn(o.field(name), o.at(name), "changes nothing without rate_limit, and is not handed down; write it where the limit is")
		}
	}
}

// label names a rule among those of its level.
func (r *DescriptorRule) label(path string) string {
	if r.When != "" && r.Key != "" {
		unconditional := *r
		unconditional.When = ""
		return unconditional.label(path) + " when " + label(r.When)
	}
	switch {
	case r.Key == "":
		return path[strings.LastIndexByte(path, '['):] // "[2]"
	case r.Regex != "":
		return label(r.Key) + "=~" + label(r.Regex)
	case r.Value == "":
		return label(r.Key)
	}
	return label(r.Key) + "=" + label(r.Value)
}

// label returns s as it is, but in quotes and cut where a message would suffer.
func label(s string) string {
	if s = short(s); strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(s)
	}
	return s
}

// inLimit are the fields of rate_limit, and outside those of the rule around it.
func inLimit() map[string]string {
	return belonging("belongs into rate_limit; write it there", "unit", "requests_per_unit", "unit_multiplier", "unlimited", "name", "replaces")
}

func outside() map[string]string {
	return belonging("belongs beside rate_limit; write it there", "key", "value", "shadow_mode", "quota_mode", "detailed_metric",
		"value_to_metric", "share_threshold", "metadata", "descriptors", "regex", "when")
}

func belonging(message string, fields ...string) map[string]string {
	all := make(map[string]string, len(fields))
	for _, f := range fields {
		all[f] = message
	}
	return all
}

// longestShownName is how long the name of a limit may be to be shown to clients whole.
const longestShownName = 200

func (o *object) descriptorLimit() *DescriptorLimit {
	o.foreign = outside()
	l := &DescriptorLimit{Multiplier: 1, Unlimited: o.flag("unlimited")}
	if name := o.optional("name"); name != nil {
		l.Name, _ = o.plainText(name, o.at("name"))
		if len(l.Name) > longestShownName || strings.ContainsFunc(l.Name, func(c rune) bool { return c < ' ' || c > '~' }) {
			o.warn(name, o.at("name"), "does not fit into headers as it is; write at most %d letters, digits and signs of ASCII", longestShownName)
		}
	}
	amount, hasAmount := o.find("requests_per_unit")
	if amount != nil {
		l.Amount, _ = o.count32(amount, o.at("requests_per_unit"), 0, math.MaxUint32)
	}
	o.unit(l)
	if list := o.optional("replaces"); list != nil {
		l.Replaces = o.replaces(list, l.Name)
	}
	before := len(o.problems)
	o.done()
	switch {
	case l.Unlimited && amount != nil:
		o.warn(amount, o.at("requests_per_unit"), "changes nothing beside unlimited; leave it out")
	case !l.Unlimited && !hasAmount && !o.noMap && len(o.problems) == before:
		o.warn(o.n, o.at("requests_per_unit"), "is missing, so it is 0 and nothing is admitted; write 0 if that is meant")
	}
	return l
}

// unit reads the window of a limit.
func (o *object) unit(l *DescriptorLimit) {
	multiplier := o.optional("unit_multiplier")
	if l.Unlimited {
		for _, name := range []string{"unit", "unit_multiplier"} {
			if n := o.optional(name); n != nil {
				o.fail(n, o.at(name), "contradicts unlimited, which has no window; leave one of them out")
			}
		}
		return
	}
	if n := o.require("unit", listed(unitWords(), "or")); n != nil {
		word := strings.ToLower(n.text)
		i := slices.Index(unitWords(), word)
		l.Unit = UnitSecond + DescriptorUnit(i)
		if n.kind != stringNode || i < 0 {
			l.Unit = 0
			o.unknownUnit(n, word)
		}
	}
	if multiplier != nil {
		l.Multiplier, _ = o.count32(multiplier, o.at("unit_multiplier"), 1, l.Unit.LongestMultiplier())
	}
}

func (o *object) unknownUnit(n *node, word string) {
	if near := nearest(word, unitWords()); near != "" && n.kind == stringNode && word != "" {
		o.fail(n, o.at("unit"), "%s is not a unit; did you mean %s?", n.shown(), near)
		return
	}
	o.fail(n, o.at("unit"), "%s is not a unit; use %s", n.shown(), listed(unitWords(), "or"))
}

// replaces reads the names of the limits that the one called name replaces.
func (o *object) replaces(n *node, name string) []string {
	var all []string
	o.elements(n, o.at("replaces"), func(item *node, path string) {
		e := o.object(item, path)
		if other := e.require("name", "the name of the limit to replace"); other != nil {
			s := e.word(other, "name")
			if s != "" && s == name {
				e.fail(other, e.at("name"), "%q is this limit itself; name another one", short(s))
			}
			all = append(all, s)
		}
		e.done()
	})
	return all
}
