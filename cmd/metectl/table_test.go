package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	tab := newTable("NAME", "USED", "NOTE").alignRight(1)
	tab.add("monthly", "962", "near its end")
	tab.add("ü", "1,000,000", "")
	for _, tt := range []struct {
		name  string
		width int
		want  string
	}{
		{"no terminal: nothing is cut", 0, "" +
			"NAME          USED  NOTE\n" +
			"monthly        962  near its end\n" +
			"ü        1,000,000\n"},
		{"terminal: the last column is cut", 28, "" +
			"NAME          USED  NOTE\n" +
			"monthly        962  near it…\n" +
			"ü        1,000,000\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			if err := tab.write(&b, tt.width); err != nil {
				t.Fatal(err)
			}
			if b.String() != tt.want {
				t.Errorf("got\n%swant\n%s", b.String(), tt.want)
			}
		})
	}
}
