package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
)

// A tree is a document as it is written, with its fields in their order: limits
// are shown and charged in the order of the plan.
type tree struct{ root *yaml.Node }

func parseTree(text []byte) (*tree, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read stored document: %w", err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fmt.Errorf("read stored document: %d values where one was expected", len(doc.Content))
	}
	return &tree{root: doc.Content[0]}, nil
}

// setName replaces metadata.name.
func (t *tree) setName(name string) {
	if metadata := child(t.root, "metadata"); metadata != nil {
		if n := child(metadata, "name"); n != nil {
			n.SetString(name)
		}
	}
}

func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// MarshalJSON keeps the order of the fields, and numbers as they are.
func (t *tree) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := appendJSON(&b, t.root)
	return b.Bytes(), err
}

func appendJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendString(b, n.Content[i].Value); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := appendJSON(b, n.Content[i+1]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendJSON(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.ScalarNode:
		return appendScalar(b, n)
	case yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
		// Never inside a valid document.
	}
	return fmt.Errorf("line %d: a value that documents do not hold", n.Line)
}

func appendScalar(b *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!float":
		if json.Valid([]byte(n.Value)) {
			b.WriteString(n.Value)
			return nil
		}
	case "!!int", "!!bool", "!!null":
		var v any
		if err := n.Decode(&v); err != nil {
			return err
		}
		text, err := json.Marshal(v)
		b.Write(text)
		return err
	}
	return appendString(b, n.Value)
}

func appendString(b *bytes.Buffer, s string) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // Encode ends with a line end
	return nil
}

// writeYAML prints the tree in block style, without comments. Scalars keep their
// quotes, so that no reader takes a text for a number.
func (t *tree) writeYAML(w io.Writer) error {
	tidy(t.root)
	out, err := yaml.Dump(t.root, yaml.WithIndent(2))
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

func tidy(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if n.Kind != yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		tidy(c)
	}
}
