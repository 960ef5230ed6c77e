package plan_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/meteproject/mete/plan"
)

// What the README and the examples show can be applied as it stands, all together,
// and the schema agrees.
func TestExamples_AreAccepted(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	for name, text := range examples(t) {
		docs, problems := plan.Decode(name, text)
		if len(docs) == 0 || len(problems) > 0 {
			t.Errorf("%s: %d documents\n%s", name, len(docs), lines(problems))
		}
		for i, v := range plan.PlainAll(text) {
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s, document %d: %v", name, i, err)
			}
		}
		catalog := plan.NewCatalog()
		for _, d := range docs {
			catalog.Put(d, 1)
		}
		for _, d := range docs {
			if problems := catalog.Check(d); len(problems) > 0 {
				t.Errorf("%s: %s %s\n%s", name, d.Kind, d.Name, lines(problems))
			}
		}
	}
}

// examples returns the documents of the README, of docs and of the quickstart.
func examples(t *testing.T) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	pages, err := filepath.Glob(filepath.Join("..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, page := range append(pages, filepath.Join("..", "README.md")) {
		for _, m := range block.FindAllSubmatch(readFile(t, page), -1) {
			found[page] = append(append(found[page], "---\n"...), m[1]...)
		}
	}
	files, err := filepath.Glob(filepath.Join("..", "examples", "quickstart", "*.yaml"))
	if err != nil || len(files) == 0 || len(found) == 0 {
		t.Fatalf("%d files and %d pages of examples, %v", len(files), len(found), err)
	}
	for _, file := range files {
		found["quickstart"] = append(append(found["quickstart"], "---\n"...), readFile(t, file)...)
	}
	return found
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
