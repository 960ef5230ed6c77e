package plan

import (
	"fmt"
	"strings"
)

// place returns where the value of a path is written, as lines of the file; false
// if it is not. Paths are as they stand in a [Problem].
func (d *Document) place(path string) (pos, bool) {
	n := d.root.at(path)
	if n == nil || path == "" {
		return pos{}, false
	}
	return pos{n.line + d.lines, n.col}, true
}

// at returns the value at the end of a path, or nil. A key may hold the dots that
// divide a path, so each key that path goes on with is tried.
func (n *node) at(path string) *node {
	if n == nil || path == "" {
		return n
	}
	for i, item := range n.items {
		var name string
		switch {
		case n.kind == listNode:
			name = fmt.Sprintf("[%d]", i)
		case n.keys[i].kind == stringNode:
			name = n.keys[i].text
		default:
			continue
		}
		rest, ok := strings.CutPrefix(path, name)
		if !ok {
			continue
		}
		if rest != "" && rest[0] != '[' {
			if rest, ok = strings.CutPrefix(rest, "."); !ok || rest == "" {
				continue
			}
		}
		if found := item.at(rest); found != nil {
			return found
		}
	}
	return nil
}
