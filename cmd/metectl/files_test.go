package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// C002: a folder that Kubernetes mounts shows every file twice, once behind
// "..data".
func TestReadSources_C002_MountedFolderLoadsOnce(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "..2026_01"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "..2026_01", "limits.yaml"), "one")
	link(t, "..2026_01", filepath.Join(root, "..data"))
	link(t, filepath.Join("..data", "limits.yaml"), filepath.Join(root, "limits.yaml"))
	write(t, filepath.Join(root, "README.md"), "not a document")

	c := &cli{stdin: strings.NewReader("two")}
	got, err := c.readSources([]string{root, "-"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || string(got[0].text) != "one" || string(got[1].text) != "two" || got[1].name != "<stdin>" {
		t.Errorf("got %q", got)
	}
}

func TestReadSourcesFails(t *testing.T) {
	empty := t.TempDir()
	for _, tt := range []struct {
		name  string
		files []string
		code  int
	}{
		{"nothing named", nil, exitUsage},
		{"no such file", []string{filepath.Join(empty, "no.yaml")}, exitNotFound},
		{"empty folder", []string{empty}, exitNotFound},
		{"twice", []string{"-", "-"}, exitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &cli{stdin: strings.NewReader("")}
			_, err := c.readSources(tt.files)
			var f *failure
			if !errors.As(err, &f) || f.code != tt.code || f.why == "" || f.next == "" {
				t.Errorf("got %#v, want exit code %d in three parts", err, tt.code)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}
