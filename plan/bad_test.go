package plan_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/meteproject/mete/plan"
)

var update = flag.Bool("update", false, "write the messages into testdata/bad; read the difference before you commit it")

// compiled returns our schema.
func compiled(tb testing.TB) *jsonschema.Schema {
	tb.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(plan.Schema()))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("document.json", doc); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile("document.json")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Each file has one fault, which its name tells, and its first line has the one
// message that it must bring. The schema must find the same fault, but where the
// second line says that a schema cannot.
func TestDecode_Bad(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "bad", "*.yaml"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	schema := compiled(t)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			docs, problems := plan.Decode(name, text)
			faults := problems[:0:0]
			for _, p := range problems {
				if !p.Warning {
					faults = append(faults, p)
				}
			}
			if len(faults) != 1 || len(docs) != 0 {
				t.Fatalf("%d documents, want one problem:\n%s", len(docs), lines(problems))
			}
			got := "# want: " + faults[0].String() + "\n"
			if *update {
				text = append([]byte(got), text[bytes.IndexByte(text, '\n')+1:]...)
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, _, _ := strings.Cut(string(text), "\n"); want+"\n" != got {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			silent := bytes.Contains(text, []byte("\n# schema: silent\n"))
			v, ok := plan.Plain(text)
			if agrees := !ok || schema.Validate(v) != nil; agrees == silent {
				t.Errorf("the schema finds a fault: %v", agrees)
			}
		})
	}
}

func TestSchema_StandardsExamples(t *testing.T) {
	schema := compiled(t)
	for _, name := range []string{"small", "medium", "big"} {
		all := plan.PlainAll(read(t, "standards", name+".yaml"))
		if len(all) < 3 {
			t.Errorf("%s: %d documents", name, len(all))
		}
		for i, v := range all {
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s, document %d: %v", name, i, err)
			}
		}
	}
}

// Descriptors have a schema of their own: it takes what is good, and refuses what is bad
// but where a line says that a schema cannot.
func TestSchema_P10_Descriptors(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	files, err := filepath.Glob(filepath.Join("testdata", "descriptors", "*.yaml"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, _, _ := bytes.Cut(readFile(t, file), []byte(wanted))
		silent, bad := bytes.Contains(text, []byte("\n# schema: silent\n")), strings.HasSuffix(file, ".bad.yaml")
		v, ok := plan.Plain(text)
		if !ok && bad {
			continue // no editor takes it for YAML
		}
		if err := schema.Validate(v); (err == nil) != (!bad || silent) || !ok {
			t.Errorf("%s is read: %t; the schema says %v", file, ok, err)
		}
	}
}

// The reader and the schema have the same patterns.
func TestSchema_Patterns(t *testing.T) {
	schema := string(plan.Schema())
	for _, pattern := range []string{
		`^[a-z][a-z0-9_-]{0,62}$`, `^[^\x00-\x1f\x7f-\x9f,\s]([^\x00-\x1f\x7f-\x9f,]*[^\x00-\x1f\x7f-\x9f,\s])?$`,
		`^([0-9]{1,9}(d|h|m|s|ms)){1,5}$`, `^(UTC|[A-Z][A-Za-z_]+(/[A-Za-z0-9_+-]+){1,2})$`,
	} {
		regexp.MustCompile(pattern)
		if !strings.Contains(schema, `"`+strings.ReplaceAll(pattern, `\`, `\\`)+`"`) {
			t.Errorf("the schema lacks %s", pattern)
		}
	}
}
