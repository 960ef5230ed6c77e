package envoy

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// jsonText appends s as a JSON string with its quotes.
func jsonText(b []byte, s string) []byte {
	return append(jsonEscaped(append(b, '"'), s, false), '"')
}

// jsonEscaped appends s as the inside of a JSON string. Bytes that are not UTF-8
// become U+FFFD. With html also "<", ">" and "&" are escaped, for templates whose
// type nobody knows.
func jsonEscaped(b []byte, s string, html bool) []byte {
	for i := 0; i < len(s); {
		ch := s[i]
		if ch >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		switch {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch < 0x20 || ch == 0x7f || html && (ch == '<' || ch == '>' || ch == '&'):
			b = append(b, '\\', 'u', '0', '0', hexDigits[ch>>4], hexDigits[ch&15])
		default:
			b = append(b, ch)
		}
		i++
	}
	return b
}

// member appends a name of an object, with the comma before it if it is not the
// first.
func member(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func memberText(b []byte, name, value string) []byte { return jsonText(member(b, name), value) }

func memberInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(member(b, name), n, 10)
}
