package main

import (
	"strings"
	"testing"
)

// What names hold moves no cursor; what people write in any language stays.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"org:acme": "org:acme", "Zürich ü 東京 🙂": "Zürich ü 東京 🙂", "two\nlines": "two\nlines",
		"a\x1b[31mb": `a\x1b[31mb`, "a\r\tb": `a\x0d\x09b`, "a\u009bb": `a\x9bb`, "a\u202eb": `a\u202eb`, "\x00": `\x00`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// A long name is cut in a table, but in its last column, which the terminal cuts.
func TestTable_LongNamesWidenNothingWithoutEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2000)
	tab := newTable("NAME", "WHY")
	tab.add(long, long+"\n\x1b[2J")
	var b strings.Builder
	if err := tab.write(&b, 0); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 3 || len([]rune(lines[1])) != widestCell+2+2000+2+len(`\x1b[2J`) || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%d lines: %q", len(lines), b.String())
	}
}
