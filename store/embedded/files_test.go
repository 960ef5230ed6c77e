package embedded_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meteproject/mete/store/embedded"
)

// filesEnv names a folder in which a process of this test binary starts an etcd, and no test.
const filesEnv = "METE_TEST_FILES"

// Files that are lost or spoilt are a sentence, not a start that hangs or a panic. Each
// start is in a process of its own: what etcd leaves behind then ends with it.
func TestServerSaysWhatIsWrongWithItsFiles(t *testing.T) {
	if dir := os.Getenv(filesEnv); dir != "" {
		_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: "127.0.0.1:0"})
		t.Fatalf("START %v", err)
	}
	t.Parallel()
	for _, row := range []struct {
		name  string
		spoil func(member string) error
		want  string
	}{
		{"no log", func(member string) error { return os.RemoveAll(filepath.Join(member, "wal")) }, "wal is gone while its database is there: put the whole folder back"},
		{"garbage", func(member string) error {
			return os.WriteFile(filepath.Join(member, "snap", "db"), bytes.Repeat([]byte("garbage "), 8192), 0o600)
		}, "cannot be read"},
		{"a database cut short", func(member string) error { return os.Truncate(filepath.Join(member, "snap", "db"), 100) }, "cannot be read"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			if err := row.spoil(filepath.Join(dir, "etcd", "member")); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerSaysWhatIsWrongWithItsFiles$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), filesEnv+"="+dir)
			out, _ := cmd.CombinedOutput()
			if text := string(out); !strings.Contains(text, "START start etcd on ") || !strings.Contains(text, row.want) || strings.Contains(text, "goroutine ") {
				t.Errorf("want %q in:\n%s", row.want, text)
			}
		})
	}
}
