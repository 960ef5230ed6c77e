package plan_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
)

// What there are a hundred thousand of must be read quickly, as people and
// programs write it.
func TestQuick_ReadsWhatThereIsMuchOf(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join("..", "examples", "quickstart", "tenant.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(example),
		"apiVersion: mete/v1\nkind: Tenant\nmetadata:\n  name: \"org:acme\"\n  labels: {team: a-b, \"x\": y}\nspec:\n  plan: free\n",
		"apiVersion: mete/v1\nkind: Tenant\n\nmetadata: { name: 'user:u1' }\nspec:\n  parent: org:acme\n  # until they pay\n" +
			"  overrides:\n    monthly:\n      amount: 10\n      until: 2026-12-01T00:00:00Z\n      reason: they asked for it nicely",
		"apiVersion: mete/v1\nkind: Credential\nmetadata:\n  name: " + strings.Repeat("0a", 32) + "\nspec: {tenant: org:acme, principal: ci, disabled: true}\n",
	} {
		reads, same := plan.Quick([]byte(strings.Replace(text, `"x": y`, "x: y", 1)))
		if !reads || !same {
			t.Errorf("read %v, as the full reader does %v:\n%s", reads, same, text)
		}
	}
}

// Texts are put together from what YAML gives a meaning, so that most are nearly
// right.
func TestQuick_SaysWhatTheFullReaderSays(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"a: b\n", "a:\n", "  ", " ", "b: c\n", "- x\n", "key: {a: b, c: d}\n", "list: [a, b]\n", "{", "}", "[", "]", ",", ", ", ":", ": ", "#", " # c\n",
		"# c\n", "\n", "\n\n", "'", "\"", "\"q\"", "'q'", "''", "\\", "-", "- ", "?", "? ", "|\n", ">\n", "&a ", "*a", "!t ", "%", "@", "`", "---\n", "...\n",
		"<<: ", "~", "null", "true", "yes", "0x1", "1_000", "1e3", ".5", "12:30", "org:acme", "a b", "a  b ", "/x", "a:b", "a,b", "a]b", "é", "\t", "\r\n", "x",
	}
	right := []string{"a: b\n", "b: c\n", "key: {a: b, c: d}\n", "list: [a, b]\n", "# c\n"}
	read := 0
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom([][]string{pieces, pieces, right}).Draw(t, "of")
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(of), 1, 12).Draw(t, "pieces"), "")
		reads, same := plan.Quick([]byte(text))
		if !same {
			t.Fatalf("another reading of %q", text)
		}
		if reads {
			read++
		}
	})
	if read == 0 {
		t.Error("none was read quickly; the comparison is empty")
	}
}

// Documents that are right, with one byte changed.
func TestQuick_SaysWhatTheFullReaderSaysOfSlips(t *testing.T) {
	t.Parallel()
	const doc = "# c\napiVersion: mete/v1\nkind: Tenant\nmetadata:\n  name: \"org:acme\"\n\n  labels: {a: b, c: [d, 'e']}\nspec:\n  plan: free\n  x:\n    y: 1 2\n"
	bytes := slices.Concat([]byte(" \n\t:,-#{}[]\"'?!&*|>%@`\\~<.+/_0aZ=\r"), []byte("\xc3"))
	for i := range len(doc) + 1 {
		for _, c := range bytes {
			variants := []string{doc[:i] + string(c) + doc[i:]}
			if i < len(doc) {
				variants = append(variants, doc[:i]+string(c)+doc[i+1:], doc[:i]+doc[i+1:])
			}
			for _, text := range variants {
				if _, same := plan.Quick([]byte(text)); !same {
					t.Errorf("another reading of %q", text)
				}
			}
		}
	}
}

func FuzzQuick(f *testing.F) {
	for _, glob := range []string{"standards", "bad", "golden"} {
		files, _ := filepath.Glob(filepath.Join("testdata", glob, "*.yaml"))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil {
				f.Add(text)
			}
		}
	}
	f.Add([]byte("a:\n  b: {c: d, e: [f, 'g']}\n# h\ni: \"j\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, same := plan.Quick(text); !same {
			t.Errorf("another reading of %q", text)
		}
	})
}
