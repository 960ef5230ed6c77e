package main

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/meteproject/mete/plan"
)

// countRules counts the rules of all levels and the limits they have.
func countRules(rules []plan.DescriptorRule) (all, limits int) {
	for i := range rules {
		below, limited := countRules(rules[i].Rules)
		all, limits = all+1+below, limits+limited
		if rules[i].Limit != nil {
			limits++
		}
	}
	return all, limits
}

// settingsSummary tells how a domain differs from what holds unless written.
func settingsSummary(s *plan.DomainSettings) string {
	if s == nil {
		return ""
	}
	parts := []string{}
	for _, p := range []struct {
		is   bool
		text string
	}{
		{s.TimeZone.String() != "UTC", s.TimeZone.String()},
		{s.Replicas == plan.Split, "split"},
		{s.OnUnavailable == plan.Deny, "on_unavailable: deny"},
		{!s.Overrides, "no overrides"},
		{!s.Refunds, "no refunds"},
		{s.ChargeRefused, "refused charged"},
		{s.ShadowMode, "SHADOW"},
	} {
		if p.is {
			parts = append(parts, p.text)
		}
	}
	if len(parts) == 0 {
		return "defaults"
	}
	return strings.Join(parts, ", ")
}

// plainDescriptors makes the tree of a document of descriptors say the same without what
// only YAML has: aliases, merge keys, text and flags that look like something else.
func (t *tree) plainDescriptors() {
	t.root = resolved(t.root)
	if domain := child(t.root, "domain"); domain != nil {
		domain.SetString(domain.Value)
	}
	if list := child(t.root, "descriptors"); list != nil {
		plainRules(list)
	}
}

func plainRules(list *yaml.Node) {
	for _, rule := range list.Content {
		if below := child(rule, "descriptors"); below != nil {
			plainRules(below)
		}
		plainFields(rule)
		limit := child(rule, "rate_limit")
		if limit == nil {
			continue
		}
		plainFields(limit)
		if others := child(limit, "replaces"); others != nil {
			for _, other := range others.Content {
				plainFields(other)
			}
		}
	}
}

// plainFields spells the fields of one map as JSON has to.
func plainFields(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		v := n.Content[i+1]
		if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null" {
			continue
		}
		switch n.Content[i].Value {
		case "key", "value", "regex", "when", "name":
			v.SetString(v.Value)
		case "requests_per_unit", "unit_multiplier":
			v.Tag, v.Value = "!!int", strings.ReplaceAll(v.Value, "_", "")
		case "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "unlimited":
			is := slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(v.Value))
			v.Tag, v.Value = "!!bool", strconv.FormatBool(is)
		}
	}
}

// resolved returns a copy of n in which what an alias or a merge key stands for is
// written out. It is for valid documents, in which that is bounded.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return resolved(n.Alias)
	}
	c := *n
	c.Anchor, c.Content = "", nil
	var merged []*yaml.Node
	for i, item := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		switch {
		case isKey && item.Value == "<<" && item.Style == 0:
			merged = append(merged, resolved(n.Content[i+1]))
		case n.Kind == yaml.MappingNode && !isKey && n.Content[i-1].Value == "<<" && n.Content[i-1].Style == 0:
		default:
			c.Content = append(c.Content, resolved(item))
		}
	}
	for _, m := range merged {
		adopt(&c, m)
	}
	return &c
}

// adopt adds to n the fields of a map, or of a list of maps, that n does not have.
func adopt(n, from *yaml.Node) {
	if from.Kind == yaml.SequenceNode {
		for _, m := range from.Content {
			adopt(n, m)
		}
		return
	}
	for i := 0; i+1 < len(from.Content); i += 2 {
		if child(n, from.Content[i].Value) == nil {
			n.Content = append(n.Content, from.Content[i], from.Content[i+1])
		}
	}
}
