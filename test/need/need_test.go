package need_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/meteproject/mete/test/need"
)

// A recorder is a test that notes how it ends.
type recorder struct {
	testing.TB

	ended string
}

func (*recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) { r.end("fails: ", format, args) }

func (r *recorder) Skipf(format string, args ...any) { r.end("is skipped: ", format, args) }

func (r *recorder) end(how, format string, args []any) {
	r.ended = how + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A test that needs a program which is missing is skipped with a line that names it, and
// fails where all are to be installed.
func TestProgram_SkipsOrFails(t *testing.T) {
	for _, tt := range []struct{ ci, program, want string }{
		{"", "no-such-program", "is skipped: needs another program: no-such-program"},
		{"true", "no-such-program", "fails: needs another program: no-such-program"},
		{"", "go", ""},
		{"true", "go", ""},
	} {
		t.Setenv("CI", tt.ci)
		r, path, done := &recorder{TB: t}, "", make(chan struct{})
		go func() {
			defer close(done)
			path = need.Program(r, tt.program)
		}()
		<-done
		if !strings.HasPrefix(r.ended, tt.want) || (path == "") != (tt.want != "") {
			t.Errorf("CI=%q, %s: %q, %q", tt.ci, tt.program, r.ended, path)
		}
	}
}
