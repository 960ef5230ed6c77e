package plan

import (
	"fmt"
	"slices"
	"strings"
)

// FeatureLevel is what this build understands of documents and of what is stored. A
// replica says its level to the others, and a document comes into force once all of
// them can read it. It rises by one with each release that lets documents say what
// its forerunner refuses to read.
const FeatureLevel = 5

// A newField is something that a document may say since a level: a replica of a lower
// one refuses to read the document, even if what it says is the default.
type newField struct {
	level int
	path  string // "*" stands for every name, "[]" for every element of a list
	asMap bool   // it is new only to write a map there
	// only reports whether what is written at path is new; nil: whatever it is. root is
	// the document.
	only func(root, value *node) bool
}

// isText returns the condition that a value is a text.
func isText(text string) func(_, value *node) bool {
	return func(_, value *node) bool { return value.kind == stringNode && value.text == text }
}

// isWiderTenant is the condition that a value is not a tenant's name for versions below
// level 5.
func isWiderTenant(_, value *node) bool {
	return value.kind == stringNode && !isTypedTenant(value.text)
}

// isWiderName is isWiderTenant for the names of documents.
func isWiderName(root, value *node) bool {
	for i, key := range root.keys {
		if key.text == "kind" && root.items[i].text == string(KindTenant) {
			return isWiderTenant(root, value)
		}
	}
	return false
}

// hasGroup is the condition that a pattern of a peer has groups.
func hasGroup(_, value *node) bool { return strings.ContainsAny(value.text, "{}") }

// newFields returns all of them. This is the place to add what documents may newly say.
func newFields() []newField {
	return []newField{
		{level: 2, path: "spec.limits.*.on_unavailable", asMap: true},
		{level: 2, path: "spec.limits.*.lease.exact_below"},
		{level: 2, path: "spec.limits.*.lease.wait"},
		{level: 2, path: "spec.limits.*.lease.report_every"},
		{level: 3, path: "spec.count"},
		{level: 3, path: "spec.attribution"},
		{level: 3, path: "spec.identity.signed_headers"},
		{level: 3, path: "spec.identity.classes.[].still_spends"},
		{level: 3, path: "spec.rules.[].match.hosts"},
		{level: 3, path: "spec.rules.[].units.requests"},
		{level: 3, path: "spec.rules.[].units.*.max"},
		{level: 3, path: "spec.rules.[].units.*.use"},
		{level: 3, path: "spec.rules.[].units.*.unreported"},
		{level: 4, path: "domain"}, // documents of descriptors
		{level: 5, path: "name"},   // of a gateway's own object, beside domain
		{level: 5, path: "spec.envoy.hosts.[]", only: isText(AllOtherHosts)},
		{level: 5, path: "spec.identity.tenant.[].as"},
		{level: 5, path: "spec.identity.tenant.[].client_address"},
		{level: 5, path: "spec.identity.tenant.[].peer_spiffe_id", only: hasGroup},
		{level: 5, path: "spec.identity.principal.[].as"},
		{level: 5, path: "spec.identity.principal.[].client_address"},
		{level: 5, path: "spec.identity.principal.[].peer_spiffe_id", only: hasGroup},
		{level: 5, path: "metadata.name", only: isWiderName},
		{level: 5, path: "spec.parent", only: isWiderTenant},
		{level: 5, path: "spec.tenant", only: isWiderTenant},
		{level: 5, path: "spec.paths"},
		{level: 5, path: "spec.headers.retry_after"},
		{level: 5, path: "spec.refusal.body", only: isText("openai")},
		{level: 5, path: "mete.headers.retry_after"},
		{level: 5, path: "mete.refusal.body", only: isText("openai")},
		{level: 5, path: "spec.count.grpc_status"},
	}
}

// needs returns the highest level among the fields of a document, and the path of the
// first that has it; 1 and "" if every version can read the document.
func (n *node) needs() (level int, path string) {
	level = 1
	for _, f := range newFields() {
		if at, found := n.find(n, f.path, &f); found && f.level > level {
			level, path = f.level, at
		}
	}
	if at, found := n.nullLimit(); found && level < nullLimitLevel {
		level, path = nullLimitLevel, at
	}
	return level, path
}

// nullLimitLevel is the level from which a rule may write rate_limit or unit_multiplier
// without a value.
const nullLimitLevel = 5

// nullLimit returns the path of the first rate_limit or unit_multiplier without a value
// in the rules of n.
func (n *node) nullLimit() (path string, found bool) {
	rules := n.value("descriptors")
	if rules == nil || rules.kind != listNode {
		return "", false
	}
	for i, rule := range rules.items {
		at := fmt.Sprintf("descriptors[%d].", i)
		limit := rule.value("rate_limit")
		switch {
		case limit == nil:
		case limit.kind == nullNode:
			return at + "rate_limit", true
		default:
			if m := limit.value("unit_multiplier"); m != nil && m.kind == nullNode {
				return at + "rate_limit.unit_multiplier", true
			}
		}
		if below, found := rule.nullLimit(); found {
			return at + below, true
		}
	}
	return "", false
}

// value returns what a map has under a key, or nil.
func (n *node) value(key string) *node {
	if n == nil || n.kind != mapNode {
		return nil
	}
	if i := slices.IndexFunc(n.keys, func(k *node) bool { return k.text == key }); i >= 0 {
		return n.items[i]
	}
	return nil
}

// find returns the first path that a pattern, which is the rest of f's, leads to.
func (n *node) find(root *node, pattern string, f *newField) (path string, found bool) {
	if pattern == "" {
		return "", (!f.asMap || n.kind == mapNode) && (f.only == nil || f.only(root, n))
	}
	name, rest, _ := strings.Cut(pattern, ".")
	inList := name == "[]"
	if inList != (n.kind == listNode) || !inList && n.kind != mapNode {
		return "", false
	}
	for i, item := range n.items {
		if !inList && n.keys[i].text != name && name != "*" {
			continue
		}
		below, found := item.find(root, rest, f)
		if !found {
			continue
		}
		key := fmt.Sprintf("[%d]", i)
		if !inList {
			key = n.keys[i].text
		}
		if below == "" || below[0] == '[' {
			return key + below, true
		}
		return key + "." + below, true
	}
	return "", false
}

// Needs returns the feature level that a replica must have to read the document, at
// least 1, and the path of the first field that asks for so much ("" at level 1). It
// is for documents as [Decode] returns them: what a [Catalog] keeps of tenants and
// credentials does not tell any more.
func (d *Document) Needs() (level int, path string) {
	if d.root == nil {
		return 1, ""
	}
	return d.root.needs()
}

// Problem returns what is wrong at a path of the document, with its place.
func (d *Document) Problem(path, message string) Problem {
	at, _ := d.place(path)
	return Problem{File: d.file, Line: at.line, Col: at.col, Kind: d.Kind, Name: d.Name, Path: path, Message: message}
}
