package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// C002 and the layouts that envoyproxy/ratelimit reads.
func TestReadImport_C002_Layouts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files []string // see lay
		want  string   // rel:key of each file
		not   string   // what is told to be skipped
	}{
		{"plain", []string{"b.yaml", "a.yml", "c.json", "noextension"}, "a.yml:a.yml b.yaml:b c.json:c.json noextension:noextension", ""},
		{"others", []string{"a.yaml", "notes.txt", ".hidden.yaml", ".git/config.yaml", ".yaml~"}, "a.yaml:a", ".hidden.yaml notes.txt"},
		{"below", []string{"team/a.yaml", "team/x/b.yaml"}, "team/a.yaml:team.a team/x/b.yaml:team.x.b", ""},
		{
			"config map",
			[]string{"..2026_01/limits.yaml", "..2025_12/old.yaml", "..data -> ..2026_01", "limits.yaml -> ..data/limits.yaml"},
			"limits.yaml:limits", "",
		},
		{
			"config map with folders", // as items with a path make them
			[]string{"..2026_01/team/limits.yaml", "..data -> ..2026_01", "team -> ..data/team"},
			"team/limits.yaml:team.limits", "",
		},
		{"runtime root", []string{"ratelimit/config/a.yaml", "ratelimit/config/b.yaml"}, "ratelimit/config/a.yaml:ratelimit.config.a ratelimit/config/b.yaml:ratelimit.config.b", ""},
		{"runtime subdirectory", []string{"config/a.yaml", "config/x/b.yaml", "config.c.yaml", "old/d.yaml"}, "a.yaml:a x/b.yaml:x.b c.yaml:c", "old"},
		{
			"config map of a runtime subdirectory",
			[]string{"..1/config/a.yaml", "..data -> ..1", "config -> ..data/config"},
			"a.yaml:a", "",
		},
		{"links in a circle", []string{"a.yaml", "b/c.yaml", "b/up -> ..", "same.yaml -> a.yaml"}, "a.yaml:a b/c.yaml:b.c", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			lay(t, root, tt.files)
			r, err := readSteady(nil, []string{root})
			if err != nil {
				t.Fatal(err)
			}
			var got, not []string
			for _, f := range r.files {
				got = append(got, f.rel+":"+f.key)
			}
			for _, s := range r.skipped {
				name, _, _ := strings.Cut(strings.TrimPrefix(s, root+"/"), " is not read: ")
				not = append(not, name)
			}
			if strings.Join(got, " ") != tt.want || strings.Join(not, " ") != tt.not {
				t.Errorf("read %q, skipped %q; want %q and %q", got, not, tt.want, tt.not)
			}
		})
	}
}

// lay writes files, each with its name in it, and links: NAME -> TO.
func lay(t *testing.T, root string, files []string) {
	t.Helper()
	for _, f := range files {
		name, to, isLink := strings.Cut(f, " -> ")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if isLink {
			link(t, to, path)
		} else {
			write(t, path, "domain: "+f)
		}
	}
}

// C002: what is read between two states of the files is not taken.
func TestReadSteady_C002_TakesNoMomentBetween(t *testing.T) {
	t.Parallel()
	state := func(text string) *importReader {
		return &importReader{files: []importFile{{name: "a.yaml", text: []byte(text)}, {name: "b.yaml", text: []byte("b" + text)}}}
	}
	mixed := state("old")
	mixed.files[1] = state("new").files[1]
	dangling := errors.New("no such file")
	for _, tt := range []struct {
		name string
		seen []any // what the readings find; the last one again and again
		want *importReader
	}{
		{"at rest", []any{state("new")}, state("new")},
		{"mixed", []any{state("old"), mixed, state("new")}, state("new")},
		{"dangling", []any{dangling, mixed, dangling, state("new")}, state("new")},
		{"gone", []any{state("old"), dangling}, nil},
		{"restless", []any{state("1"), state("2"), state("3"), state("4"), state("5"), state("6")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at := -1
			got, err := steady(func() (*importReader, error) {
				at = min(at+1, len(tt.seen)-1)
				r, _ := tt.seen[at].(*importReader)
				err, _ := tt.seen[at].(error)
				return r, err
			})
			if (tt.want == nil) != (err != nil) || tt.want != nil && got.sum() != tt.want.sum() {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// Two files where only one of them counts for envoyproxy/ratelimit are no guess.
func TestReadImport_Ambiguous(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "config", "a.yaml"), "")
	write(t, filepath.Join(root, "b.yaml"), "")
	_, err := readImport(nil, []string{root})
	f, ok := err.(*failure) //nolint:errorlint // it comes unwrapped
	if !ok || f.code != exitUsage || !strings.Contains(f.next, filepath.Join(root, "config")) {
		t.Errorf("got %v", err)
	}
}

func TestOrigin_NamesOfAnyKind(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"limits.yaml", "a b/c\"d.yaml", "new\nline.yaml", "\xff.yaml", "ö.yaml"} {
		line := origin{file, "team-b"}.line()
		got, ok := originOf([]byte(line + "domain: edge\n"))
		if !ok || got.file != file || got.source != "team-b" || strings.Count(line, "\n") != 1 {
			t.Errorf("%q: got %+v, %v", line, got, ok)
		}
	}
	for _, text := range []string{"", "domain: edge\n", "# Imported by metectl from", "# Imported by metectl from \"a\" and more\ndomain: edge", strings.Repeat("#", 9000)} {
		if got, ok := originOf([]byte(text)); ok {
			t.Errorf("%q is taken for an import: %+v", text, got)
		}
	}
}

// One transaction as long as etcd takes it; a domain that fits into one is never cut.
func TestParts_DomainsStayWhole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		domains, each   int // documents of each domain
		bytes           int // of each document
		parts           int
		gone, wholeness bool
	}{
		{"few", 3, 2, 100, 1, false, true},
		{"sixty", 60, 1, 100, 1, false, true},
		{"sixty-one", 61, 1, 100, 2, false, true},
		{"domains of 25", 5, 25, 100, 3, false, true},
		{"long", 4, 2, 200 << 10, 2, false, true},
		{"one too large for one", 1, 100, 100, 2, true, false},
		{"documents of a megabyte", 3, 1, 1 << 20, 3, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &importPlan{}
			total := 0
			for d := range tt.domains {
				domain := fmt.Sprintf("d%d", d)
				for i := range tt.each {
					doc := &plan.Document{
						Kind: plan.KindRateLimits, Name: fmt.Sprintf("%s/%d", domain, i),
						Text: make([]byte, tt.bytes), RateLimits: &plan.RateLimits{Domain: domain},
					}
					total++
					if tt.gone && i < tt.each/2 {
						p.gone = append(p.gone, stored{kind: doc.Kind, name: doc.Name, doc: doc})
						continue
					}
					p.steps = append(p.steps, step{doc: doc, verb: "created"})
				}
			}
			checkParts(t, p.parts(), tt.parts, total, tt.wholeness)
		})
	}
}

func checkParts(t *testing.T, parts [][]store.Change, want, total int, wholeness bool) {
	t.Helper()
	in := map[string]int{} // the part of each domain
	deleted := false
	for i, part := range parts {
		size := 0
		for _, ch := range part {
			total--
			size += len(ch.Text)
			domain, _, _ := strings.Cut(ch.Name, "/")
			if was, known := in[domain]; known && was != i && wholeness {
				t.Errorf("domain %s is in parts %d and %d", domain, was, i)
			}
			in[domain] = i
			if deleted && ch.Text != nil {
				t.Error("a deletion comes before what is new")
			}
			deleted = deleted || ch.Text == nil
		}
		if len(part) > importOps || size > importBytes && len(part) > 1 {
			t.Errorf("part %d has %d documents and %d bytes", i, len(part), size)
		}
	}
	if len(parts) != want || total != 0 {
		t.Errorf("got %d parts, %d changes missing; want %d parts", len(parts), total, want)
	}
}

// A name depends on the file and the flag alone, so that files come and go without
// moving another document.
func TestImport_NamesAreStable(t *testing.T) {
	t.Parallel()
	im := &importer{cli: &cli{}, merge: true, source: "default"}
	names := func(files ...string) []string {
		r := &importReader{}
		for i, f := range files {
			text := rule("shared", fmt.Sprintf("%s%d", f, i))
			r.files = append(r.files, importFile{name: f + ".yaml", rel: f + ".yaml", key: f, text: []byte(text)})
		}
		p := im.decode(r)
		if p.refused() {
			t.Fatal(p.problems)
		}
		var all []string
		for _, doc := range p.docs {
			all = append(all, doc.Name)
		}
		return all
	}
	three := names("a", "m", "z")
	for _, some := range [][]string{{"a"}, {"m"}, {"m", "z"}, {"a", "z"}} {
		for _, name := range names(some...) {
			if !slices.Contains(three, name) {
				t.Errorf("%v has %s, which three files have not: %v", some, name, three)
			}
		}
	}
}
