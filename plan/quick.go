package plan

// quick reads the YAML that nearly all documents are written in, without what the
// YAML library costs: a hundred thousand tenants are read at every start. It
// returns what [parseYAML] returns, to the last position, or nil: then the text
// uses anything else of YAML, or is none, and parseYAML is to read it.
//
// It knows printable ASCII; maps of one key a line, whose values are maps further
// in; values in one line: plain text, quoted text without escapes, and {a: b} and
// [a, b] of them; and comments on lines of their own.
func quick(text []byte) *node {
	for _, c := range text {
		if (c < ' ' || c > '~') && c != '\n' {
			return nil
		}
	}
	q := quickReader{text: text, line: 1}
	q.advance()
	if q.ended || q.indent > 0 {
		return nil
	}
	n := q.block(1)
	if q.failed || !q.ended {
		return nil
	}
	return n
}

// quickDepth is how deep quick follows a document; it is less than maxNesting.
const quickDepth = 10

// A quickReader stands at a byte of a text. Once it has failed, what it returns
// means nothing.
type quickReader struct {
	text   []byte
	at     int
	start  int // of the line
	line   int
	indent int // of the line
	ended  bool
	failed bool
	free   []node
}

// advance goes to the next line that holds more than a comment.
func (q *quickReader) advance() {
	for q.at < len(q.text) {
		q.start = q.at
		q.spaces()
		switch q.peek() {
		case 0:
		case '#':
			for q.peek() != '\n' && q.peek() != 0 {
				q.at++
			}
		case '\n':
		default:
			q.indent = q.at - q.start
			return
		}
		if q.peek() == '\n' {
			q.at++
			q.line++
		}
	}
	q.ended = true
}

// peek returns the byte at hand, 0 at the end.
func (q *quickReader) peek() byte {
	if q.at == len(q.text) {
		return 0
	}
	return q.text[q.at]
}

func (q *quickReader) spaces() {
	for q.peek() == ' ' {
		q.at++
	}
}

// take goes past c; anything else there is a failure.
func (q *quickReader) take(c byte) {
	if q.peek() != c {
		q.failed = true
		return
	}
	q.at++
}

// node returns a new node at the byte at hand.
func (q *quickReader) node(kind nodeKind) *node {
	if len(q.free) == 0 {
		q.free = make([]node, 8)
	}
	n := &q.free[0]
	q.free = q.free[1:]
	n.kind, n.pos = kind, pos{q.line, q.at - q.start + 1}
	return n
}

// block reads the map of one key a line that begins here.
func (q *quickReader) block(depth int) *node {
	n, indent := q.node(mapNode), q.indent
	q.failed = q.failed || depth > quickDepth
	for !q.failed && !q.ended && q.indent == indent {
		n.keys = append(n.keys, q.key())
		q.take(':')
		if q.peek() == '\n' {
			if q.advance(); q.ended || q.indent <= indent {
				q.failed = true // a key without a value
				break
			}
			n.items = append(n.items, q.block(depth+1))
			continue
		}
		q.take(' ')
		q.spaces()
		n.items = append(n.items, q.value(depth+1, false))
		if q.spaces(); q.peek() != '\n' && q.peek() != 0 {
			q.failed = true
		}
		q.advance()
	}
	q.failed = q.failed || !q.ended && q.indent > indent
	return n
}

// key reads a key without quotes.
func (q *quickReader) key() *node {
	const longest = 100 // YAML has a bound too, far above
	n, from := q.node(stringNode), q.at
	for isWordByte(q.peek()) || q.peek() == '-' && q.at > from {
		q.at++
	}
	q.failed = q.failed || q.at == from || q.at-from > longest
	n.text = string(q.text[from:q.at])
	n.kind = scalarKind(n.text, false)
	return n
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// value reads a value that ends in this line; flow tells that it stands in {} or
// [], where some characters mean something else.
func (q *quickReader) value(depth int, flow bool) *node {
	q.failed = q.failed || depth > quickDepth
	switch c := q.peek(); {
	case q.failed:
	case c == '{', c == '[':
		return q.flow(depth)
	case c == '"', c == '\'':
		return q.quoted(c)
	case isWordByte(c), c == '/':
		return q.plain(flow)
	}
	q.failed = true
	return nil
}

// flow reads {a: b} or [a, b].
func (q *quickReader) flow(depth int) *node {
	n, end := q.node(listNode), byte(']')
	if q.peek() == '{' {
		n.kind, end = mapNode, '}'
	}
	q.at++
	for q.spaces(); !q.failed && q.peek() != end; {
		if n.kind == mapNode {
			n.keys = append(n.keys, q.key())
			q.take(':')
			q.take(' ')
			q.spaces()
		}
		n.items = append(n.items, q.value(depth+1, true))
		if q.spaces(); q.peek() == end {
			break
		}
		q.take(',')
		q.spaces()
		q.failed = q.failed || q.peek() == end
	}
	q.take(end)
	return n
}

// quoted reads text in quotes that holds neither a quote nor an escape.
func (q *quickReader) quoted(quote byte) *node {
	n := q.node(stringNode)
	n.quoted = true
	q.at++
	from := q.at
	for c := q.peek(); c != quote; c = q.peek() {
		if c == 0 || c == '\n' || c == '\\' {
			q.failed = true
			return n
		}
		q.at++
	}
	n.text = string(q.text[from:q.at])
	q.at++
	if q.peek() == quote {
		q.failed = true // a quote inside
	}
	return n
}

// plain reads text without quotes.
func (q *quickReader) plain(flow bool) *node {
	n, from, end := q.node(stringNode), q.at, q.at
	for c := q.peek(); ; c = q.peek() {
		switch {
		case isWordByte(c), c == '-', c == '.', c == '/', c == '+':
			end = q.at + 1
		case c == ':':
			// Before space it makes what was read a key.
			if q.at+1 == len(q.text) || !isWordByte(q.text[q.at+1]) {
				q.failed = true
			}
			end = q.at + 1
		case c == ' ':
		case c == 0, c == '\n', flow && (c == ',' || c == '}' || c == ']'):
			n.text = string(q.text[from:end])
			n.kind = scalarKind(n.text, false)
			return n
		default:
			q.failed = true
		}
		if q.failed {
			return n
		}
		q.at++
	}
}
