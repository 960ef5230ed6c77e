package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// goBuild builds a command of a module that the one at root requires.
func goBuild(ctx context.Context, root, to, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", to, what)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", what, err, bytes.TrimSpace(out))
	}
	return nil
}
