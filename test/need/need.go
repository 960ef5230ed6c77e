// Package need finds the programs that tests use beside those of README's list.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Program returns the path of a program, and skips the test where PATH has none, with a
// line that names it. With CI=true in the environment the test fails instead: there all
// programs are to be installed.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	for _, where := range []string{name, "/usr/sbin/" + name} { // not in everybody's PATH
		if path, err := exec.LookPath(where); err == nil {
			return path
		}
	}
	Missing(tb, name+" is not in PATH")
	return ""
}

// Missing ends a test that lacks a program, as Program does.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("needs another program: %s, and with CI=true it must be there", what)
	}
	tb.Skipf("needs another program: %s", what)
}
