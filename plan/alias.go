package plan

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// maxCopied is how many nodes all aliases of a document may stand for, so that a few
// lines cannot become gigabytes.
const maxCopied = 100_000

// familyOfYAML is familyOf the keys of a YAML map.
func familyOfYAML(y *yaml.Node) foreigner {
	var keys []string
	for i := 0; y.Kind == yaml.MappingNode && i+1 < len(y.Content); i += 2 {
		keys = append(keys, y.Content[i].Value)
	}
	return familyOf(keys)
}

// alias returns a copy of what an alias stands for, in its place there.
func (c *converter) alias(y *yaml.Node) *node {
	c.copied += size(y.Alias, maxCopied)
	switch {
	case slices.Contains(c.open, y.Alias) || y.Alias == nil:
		c.refuse(y, "alias "+y.Value+" stands for what it is a part of; write the value out")
	case c.copied > maxCopied:
		if c.copied < 2*maxCopied {
			c.refuse(y, fmt.Sprintf("aliases stand for more than %d values; write fewer", maxCopied))
		}
		c.copied = 2 * maxCopied
	default:
		c.open = append(c.open, y.Alias)
		n := c.convert(y.Alias)
		c.open = c.open[:len(c.open)-1]
		return n
	}
	return &node{pos: pos{y.Line, y.Column}, kind: stringNode, quoted: true}
}

// size counts the nodes of y, without what aliases in it stand for, up to most.
func size(y *yaml.Node, most int) int {
	if y == nil {
		return 0
	}
	n := 1
	for _, item := range y.Content {
		if n >= most {
			break
		}
		n += size(item, most-n)
	}
	return n
}

func isMergeKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.Style == 0
}

// mergeInto adds to n what the merge keys of y bring and n does not have.
func (c *converter) mergeInto(n *node, y *yaml.Node) {
	for i := 0; i+1 < len(y.Content); i += 2 {
		if !isMergeKey(y.Content[i]) {
			continue
		}
		from := c.convert(y.Content[i+1])
		maps := []*node{from}
		if from.kind == listNode {
			maps = from.items
		}
		for _, m := range maps {
			if m.kind != mapNode {
				c.refuse(y.Content[i], "only a map can be merged; write <<: *NAME")
				continue
			}
			n.adopt(m)
		}
	}
}

// adopt adds the fields of m that n does not have.
func (n *node) adopt(m *node) {
	own := make(map[string]bool, len(n.keys))
	for _, key := range n.keys {
		own[key.text] = true
	}
	for i, key := range m.keys {
		if !own[key.text] {
			n.keys, n.items = append(n.keys, key), append(n.items, m.items[i])
		}
	}
}
