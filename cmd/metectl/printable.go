package main

import (
	"fmt"
	"strings"
	"unicode"
)

// printable returns s with escapes for what would move the cursor, change colours or
// turn the writing: names are chosen by others.
func printable(s string) string {
	if !strings.ContainsFunc(s, isEscaped) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !isEscaped(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, "\\x%02x", r)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// isEscaped reports whether a letter is not printed as it is: controls, and marks that
// turn the direction of writing.
func isEscaped(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}
