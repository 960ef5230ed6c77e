package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Exit codes. Scripts branch on them, so they never change their meaning.
const (
	exitDone        = 0   // done; or: no differences, valid, nothing rejected
	exitNegative    = 1   // a negative answer, not a failure: differences found, something rejected
	exitUsage       = 2   // wrong flags or arguments; or a yes is missing
	exitInvalid     = 3   // a document is invalid
	exitConflict    = 4   // changed since it was read
	exitNotFound    = 5   // no such document, tenant or file
	exitForbidden   = 6   // not permitted
	exitUnreachable = 7   // store unreachable, or timed out
	exitPartly      = 8   // done in part: applied, but not confirmed everywhere
	exitInterrupted = 130 // Ctrl-C
)

// A failure says what failed, why, and what to do next.
type failure struct {
	code            int
	what, why, next string
}

func (f *failure) Error() string { return f.what + ": " + f.why }

// answer is a negative answer that has been printed already.
type answer int

func (a answer) Error() string { return fmt.Sprintf("exit %d", int(a)) }

// unexpected classifies what is left: all calls of the store and of files come
// classified, so it is mostly stdout that could not be written.
func unexpected(err error) error {
	var f *failure
	var a answer
	if err == nil || errors.As(err, &f) || errors.As(err, &a) {
		return err
	}
	return &failure{code: exitUnreachable, what: "cannot finish", why: err.Error(), next: "see whether the output can be written, then try again"}
}

// usageError tells that the command line is wrong.
func usageError(why, next string) error {
	return &failure{code: exitUsage, what: "wrong command line", why: why, next: next}
}

// needsYes says that a command asks first, where there is no terminal to ask at.
func needsYes(why, next string) error {
	return &failure{code: exitUsage, what: "not confirmed", why: why, next: next}
}

// fileError classifies an error of the file system.
func fileError(what string, err error) error {
	f := &failure{code: exitUsage, what: what, why: err.Error(), next: "name a readable file or folder, or - for standard input"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.code = exitNotFound
	case errors.Is(err, fs.ErrPermission):
		f.code = exitForbidden
	}
	return f
}

// report prints err for a person and returns the exit code. ctx is the context
// that a signal ends.
func report(ctx context.Context, stderr io.Writer, err error) int {
	var a answer
	if err == nil {
		return exitDone
	}
	if errors.As(err, &a) {
		return int(a)
	}
	if ctx.Err() != nil {
		_, _ = fmt.Fprintln(stderr, "metectl: interrupted")
		return exitInterrupted
	}
	var f *failure
	if !errors.As(err, &f) { // cobra's own errors: unknown command or flag
		f = &failure{code: exitUsage, what: "wrong command line", why: firstLine(err.Error()), next: "metectl --help lists the commands"}
	}
	_, _ = fmt.Fprintf(stderr, "metectl: %s: %s\n", printable(f.what), printable(f.why))
	if f.next != "" {
		_, _ = fmt.Fprintf(stderr, "next: %s\n", printable(f.next))
	}
	return f.code
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
