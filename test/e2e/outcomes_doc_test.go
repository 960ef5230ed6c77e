package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meteproject/mete/test/envoy"
)

var update = flag.Bool("update", false, "write the tables of docs/what-a-request-costs.md; read the difference before you commit it")

// tablesBelow is the line of the document above what is written from the tables here.
const tablesBelow = "<!-- What follows is written by: go test ./test/e2e -run TestOutcomes_Document -update -->\n"

// The document that tells what every outcome costs says what the matrix checks.
func TestOutcomes_Document(t *testing.T) {
	t.Parallel()
	root, err := envoy.Root()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "docs", "what-a-request-costs.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	above, _, found := strings.Cut(string(text), tablesBelow)
	if !found {
		t.Fatalf("%s has no line %s", file, tablesBelow)
	}
	want := above + tablesBelow + outcomesTables()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Error("docs/what-a-request-costs.md is not what the tests check; run the command that it names")
	}
}

func outcomesTables() string {
	var b strings.Builder
	for _, s := range sections() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| what happened | the caller got |", s.title, s.about)
		for _, c := range columns {
			b.WriteString(" " + c.title + " |")
		}
		b.WriteString(" why |\n|---|---|" + strings.Repeat("--:|", len(columns)) + "---|\n")
		for _, row := range s.rows {
			fmt.Fprintf(&b, "| %s | %s |", row.happened, row.saw)
			for _, n := range row.costs {
				fmt.Fprintf(&b, " %d |", n)
			}
			fmt.Fprintf(&b, " %s |\n", row.why)
		}
	}
	return b.String()
}
