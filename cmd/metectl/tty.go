package main

import (
	"os"

	"github.com/mattn/go-isatty"
)

// isTerminal reports whether a stream is a terminal; only there do we ask
// questions and cut lines.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
