// Command zones writes the data of time zones that the toolchain comes with to plan/zones:
// mete reads no other, so that all replicas of one build reckon alike on every machine.
package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

func main() {
	if err := run(filepath.Join(runtime.GOROOT(), "lib", "time"), filepath.Join("plan", "zones")); err != nil { //nolint:staticcheck // run with the toolchain that it asks about
		fmt.Fprintln(os.Stderr, "zones:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	script, err := os.ReadFile(filepath.Join(from, "update.bash"))
	if err != nil {
		return err
	}
	version := regexp.MustCompile(`(?m)^DATA=(\S+)$`).FindSubmatch(script)
	if version == nil {
		return fmt.Errorf("%s/update.bash names no version", from)
	}
	archive, err := zip.OpenReader(filepath.Join(from, "zoneinfo.zip"))
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	files := slices.DeleteFunc(archive.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/") })
	slices.SortFunc(files, func(a, b *zip.File) int { return strings.Compare(a.Name, b.Name) })
	var data, index bytes.Buffer
	fmt.Fprintf(&index, "%s\n", version[1])
	for _, f := range files {
		at := data.Len()
		r, err := f.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(&data, r)
		if err := closed(err, r); err != nil {
			return err
		}
		fmt.Fprintf(&index, "%s %d %d\n", f.Name, at, data.Len()-at)
	}
	if err := os.WriteFile(filepath.Join(to, "index.txt"), index.Bytes(), 0o644); err != nil { //nolint:gosec // source code
		return err
	}
	return os.WriteFile(filepath.Join(to, "zones.bin"), data.Bytes(), 0o644) //nolint:gosec // source code
}

func closed(err error, c io.Closer) error {
	if closing := c.Close(); err == nil {
		err = closing
	}
	return err
}
