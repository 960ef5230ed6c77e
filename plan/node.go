package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxNesting is how deep a document may be nested. Ours need eight levels; the
// bound keeps the readers' recursion small whatever is sent.
const maxNesting = 32

// A nodeKind is the type that a value has where it is written.
type nodeKind int

const (
	nullNode nodeKind = iota
	boolNode
	numberNode // anything that some YAML version reads as a number
	stringNode
	listNode
	mapNode
)

// A pos is a place in a file, both counted from 1. Line 0: unknown.
type pos struct{ line, col int }

// A node is one value of a document, YAML or JSON, with its place.
type node struct {
	pos
	kind   nodeKind
	text   string // scalars: as written, without quotes
	quoted bool
	keys   []*node // of a map
	items  []*node // of a list or map
}

// A syntaxError is a text that is not YAML or JSON, or uses more of YAML than
// documents may.
type syntaxError struct {
	pos
	message string
}

// parse reads one document. It returns nil without an error if text holds
// nothing but space and comments.
func parse(text []byte) (*node, []*syntaxError) {
	if isJSON(text) {
		n, err := parseJSON(text)
		if err != nil {
			return nil, []*syntaxError{err}
		}
		return n, nil
	}
	if n := quick(text); n != nil {
		return n, nil
	}
	return parseYAML(text)
}

// isJSON reports whether text is to be read as JSON and as nothing else: it begins
// with a brace. A brace before a bare name or a comment begins YAML in flow form.
func isJSON(text []byte) bool {
	const space = " \t\r\n"
	inside, brace := bytes.CutPrefix(bytes.TrimLeft(text, space), []byte("{"))
	inside = bytes.TrimLeft(inside, space)
	flow := len(inside) > 0 && (inside[0] == '#' || 'a' <= inside[0] && inside[0] <= 'z')
	return brace && !flow
}

func parseYAML(text []byte) (*node, []*syntaxError) {
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxNesting))))
	if err != nil {
		return nil, []*syntaxError{yamlError(err)}
	}
	var root, second yaml.Node
	if err := loader.Load(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, []*syntaxError{yamlError(err)}
	}
	if err := loader.Load(&second); err == nil {
		return nil, []*syntaxError{{pos{second.Line, second.Column}, "a second document begins here; write --- on a line of its own before it"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, []*syntaxError{yamlError(err)}
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
		return nil, nil
	}
	c := converter{shares: familyOfYAML(root.Content[0]) == descriptorFile}
	n := c.convert(root.Content[0])
	if n.kind == nullNode && n.text == "" && len(c.problems) == 0 {
		return nil, nil
	}
	return n, c.problems
}

func yamlError(err error) *syntaxError {
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		at := pos{e.Mark.Line, e.Mark.Column}
		switch {
		case strings.HasPrefix(e.Message, "exceeded max depth"):
			return &syntaxError{at, fmt.Sprintf("is nested more than %d deep; no document needs that", maxNesting)}
		case strings.HasPrefix(e.Message, "unknown anchor"):
			return &syntaxError{at, "aliases are not read; write the value out"}
		}
		return &syntaxError{at, "is not YAML: " + e.Message}
	}
	return &syntaxError{pos{}, "is not YAML: " + err.Error()}
}

// A converter turns YAML nodes into ours and refuses what documents may not use.
type converter struct {
	problems []*syntaxError
	// In descriptors, which others wrote for another program, anchors are followed.
	shares bool
	copied int          // nodes that aliases stand for
	open   []*yaml.Node // the anchors that are being copied
}

func (c *converter) refuse(y *yaml.Node, message string) {
	c.problems = append(c.problems, &syntaxError{pos{y.Line, y.Column}, message})
}

func (c *converter) convert(y *yaml.Node) *node {
	n := &node{pos: pos{y.Line, y.Column}, text: y.Value}
	if y.Anchor != "" && y.Kind != yaml.AliasNode && !c.shares {
		c.refuse(y, "anchors are not read; write the value out where it is needed")
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.refuse(y, "tag "+y.Tag+" is not read; leave it out")
	}
	switch y.Kind {
	case yaml.ScalarNode:
		n.quoted = y.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
		n.kind = scalarKind(y.Value, n.quoted)
	case yaml.SequenceNode:
		n.kind = listNode
		for _, item := range y.Content {
			n.items = append(n.items, c.convert(item))
		}
	case yaml.MappingNode:
		n.kind = mapNode
		for i := 0; i+1 < len(y.Content); i += 2 {
			key := y.Content[i]
			if isMergeKey(key) {
				if c.shares {
					continue // below, once it is known what is written here
				}
				c.refuse(key, "merge keys are not read; write the fields out")
				continue
			}
			n.keys = append(n.keys, c.convert(key))
			n.items = append(n.items, c.convert(y.Content[i+1]))
		}
		if c.shares {
			c.mergeInto(n, y)
		}
	case yaml.AliasNode:
		if c.shares {
			return c.alias(y)
		}
		c.refuse(y, "aliases are not read; write the value out")
	case yaml.DocumentNode, yaml.StreamNode:
	}
	return n
}

// scalarKind tells what a scalar is. A plain scalar that any version of YAML
// takes for a number, a boolean or nothing is one, so that no text changes its
// meaning with the program that reads it.
func scalarKind(text string, quoted bool) nodeKind {
	if quoted {
		return stringNode
	}
	switch strings.ToLower(text) {
	case "", "~", "null":
		return nullNode
	case "true", "false":
		return boolNode
	}
	if looksNumeric(text) {
		return numberNode
	}
	return stringNode
}

// looksNumeric reports whether YAML 1.1 or 1.2 reads the plain scalar s as a
// number. Base 60 is left out: nobody means it, and 12:30 is a time.
func looksNumeric(s string) bool {
	t := strings.TrimLeft(strings.ToLower(s), "+-")
	switch t {
	case ".nan", ".inf", "nan", "inf", "infinity":
		return true
	}
	if digits := strings.TrimPrefix(t, "."); digits == "" || digits[0] < '0' || digits[0] > '9' {
		return false
	}
	if rest, ok := strings.CutPrefix(t, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef_") == ""
	}
	if rest, ok := strings.CutPrefix(t, "0o"); ok {
		return strings.Trim(rest, "01234567_") == ""
	}
	if rest, ok := strings.CutPrefix(t, "0b"); ok {
		return strings.Trim(rest, "01_") == ""
	}
	mantissa, exponent, hasExponent := strings.Cut(t, "e")
	if strings.Count(mantissa, ".") > 1 || strings.Trim(mantissa, "0123456789_.") != "" {
		return false
	}
	exponent = strings.TrimLeft(exponent, "+-")
	return !hasExponent || exponent != "" && strings.Trim(exponent, "0123456789") == ""
}

// parseJSON reads text as JSON and as nothing else.
func parseJSON(text []byte) (*node, *syntaxError) {
	p := &jsonReader{text: text}
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			message := strings.Replace(e.Error(), "exceeded max depth", "it is nested too deep", 1)
			return nil, &syntaxError{p.pos(max(0, int(e.Offset)-1)), "is not JSON: " + message}
		}
		return nil, &syntaxError{p.pos(0), "is not JSON: " + err.Error()}
	}
	p.dec = json.NewDecoder(bytes.NewReader(text))
	p.dec.UseNumber()
	return p.value(1)
}

// A jsonReader turns JSON into nodes, one token after the other.
type jsonReader struct {
	text []byte
	dec  *json.Decoder
	// The place that pos was asked for last, so that it counts on from there.
	offset int
	at     pos
}

// pos returns the place of a byte. Offsets never go down from call to call.
func (p *jsonReader) pos(offset int) pos {
	if p.at.line == 0 {
		p.at = pos{1, 1}
	}
	for p.offset < min(offset, len(p.text)) {
		b := p.text[p.offset]
		switch {
		case b == '\n':
			p.at = pos{p.at.line + 1, 1}
		case b&0xc0 != 0x80: // not inside a rune
			p.at.col++
		}
		p.offset++
	}
	return p.at
}

// next returns the place of the next token and the token.
func (p *jsonReader) next() (pos, json.Token, *syntaxError) {
	start := int(p.dec.InputOffset())
	for start < len(p.text) && bytes.IndexByte([]byte(" \t\r\n,:"), p.text[start]) >= 0 {
		start++
	}
	at := p.pos(start)
	token, err := p.dec.Token()
	if err != nil {
		return at, nil, &syntaxError{at, "is not JSON: " + err.Error()}
	}
	return at, token, nil
}

func (p *jsonReader) value(depth int) (*node, *syntaxError) {
	at, token, err := p.next()
	if err != nil {
		return nil, err
	}
	if depth > maxNesting {
		return nil, &syntaxError{at, fmt.Sprintf("is nested more than %d deep; no document needs that", maxNesting)}
	}
	n := &node{pos: at}
	switch t := token.(type) {
	case nil:
		n.text = "null"
	case bool:
		n.kind, n.text = boolNode, fmt.Sprint(t)
	case json.Number:
		n.kind, n.text = numberNode, t.String()
	case string:
		n.kind, n.text, n.quoted = stringNode, t, true
	case json.Delim:
		n.kind = listNode
		if t == '{' {
			n.kind = mapNode
		}
		for p.dec.More() {
			if n.kind == mapNode {
				at, key, err := p.next()
				if err != nil {
					return nil, err
				}
				text, _ := key.(string)
				n.keys = append(n.keys, &node{pos: at, kind: stringNode, text: text, quoted: true})
			}
			item, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		if _, _, err := p.next(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// A chunk is the text of one document of a file.
type chunk struct {
	text  []byte // with its marker
	lines int    // before it
	bare  bool   // it begins with a marker
}

// split cuts a file at its "---" lines. YAML lets nothing else be written so,
// and JSON knows no such line.
func split(data []byte) []chunk {
	var chunks []chunk
	c := chunk{}
	start, line := 0, 0
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if isMarker(data[at:end]) {
			if at > start || c.bare {
				c.text = data[start:at]
				chunks = append(chunks, c)
			}
			start, c = at, chunk{lines: line, bare: true}
		}
		at, line = end, line+1
	}
	c.text = data[start:]
	return append(chunks, c)
}

func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || slices.Contains([]byte(" \t\r\n"), rest[0]))
}

// body returns the chunk's text without a bare marker line.
func (c chunk) body() []byte {
	if !c.bare {
		return c.text
	}
	marker, rest, _ := bytes.Cut(c.text, []byte("\n"))
	if string(bytes.TrimRight(marker, " \t\r")) == "---" {
		return rest
	}
	return c.text
}
