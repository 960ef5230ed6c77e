package ledger_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/ledger"
)

// unsynced is for tests that open many files.
func unsynced(*os.File) error { return nil }

// A write that tears a line leaves none behind, wherever it tears, and every unit is
// in one line under one id.
func TestFile_Q49_C138_TornWritesAreMended(t *testing.T) {
	t.Parallel()
	for cut := range 1300 { // three lines are a little longer
		left, written := cut, map[string]bool{}
		e, path := openFaulty(t, ledger.Config{}, ledger.Faults{Sync: unsynced, Write: func(f *os.File, b []byte) (int, error) {
			if left < 0 {
				return f.Write(b)
			}
			n, err := f.Write(b[:min(left, len(b))])
			for line := range bytes.Lines(b) { // what may have been seen by somebody who follows the file
				written[string(line)] = true
			}
			left = -1
			return n, errors.Join(err, syscall.ENOSPC)
		}})
		for _, tenant := range []string{"a", "b", "c"} {
			u := use(tenant, 1)
			e.Add(&u)
		}
		if err := e.Flush(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
			t.Fatal(err)
		}
		if got, whole := len(read(t, path)), e.Stats(); got != int(whole.Events) || whole.Pending != 3-got {
			t.Fatalf("%d lines after a write of %d bytes, %+v", got, cut, whole)
		}
		u := use("a", 1)
		e.Add(&u) // goes into a new line, not into one whose id may be known already
		flush(t, e)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		events := read(t, path)
		for i, line := range slices.Collect(strings.Lines(string(text)))[:3] {
			if !written[line] {
				t.Fatalf("line %d has changed: %s", i+1, line)
			}
		}
		if len(events) != 4 || bill(events)["counted"] != 4 {
			t.Fatalf("%+v", events)
		}
	}
}

// Where even the repair fails, nothing is written before it succeeds.
func TestFile_C138_NothingIsWrittenAfterHalfALine(t *testing.T) {
	t.Parallel()
	broken := true
	e, path := openFaulty(t, ledger.Config{}, ledger.Faults{
		Write: func(f *os.File, b []byte) (int, error) {
			if !broken {
				return f.Write(b)
			}
			_, _ = f.Write(b[:len(b)-5])
			return 0, syscall.EIO // which says less than what was done
		},
		Truncate: func(f *os.File, n int64) error {
			if broken {
				return syscall.EIO
			}
			return f.Truncate(n)
		},
	})
	u := use("a", 1)
	e.Add(&u)
	for range 3 {
		if err := e.Flush(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil || bytes.Count(before, []byte("specversion")) != 1 {
		t.Fatalf("%s, %v", before, err)
	}
	broken = false
	flush(t, e)
	if got := read(t, path); len(got) != 1 || got[0].ID != "0000000000000abc-1" {
		t.Errorf("%+v", got)
	}
}

// A crash leaves half a line, or zeros: the next process goes on after the last whole one.
func TestNewEvents_Q49_C138_WhatACrashTearsIsRepaired(t *testing.T) {
	t.Parallel()
	first, path := open(t, ledger.Config{})
	for _, tenant := range []string{"a", "b"} {
		u := use(tenant, 1)
		first.Add(&u)
		flush(t, first)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.IndexByte(whole, '\n') + 1
	for n := range len(whole) - second {
		for _, zeros := range []int{0, 7} {
			dead := append(slices.Clone(whole[:second+n]), make([]byte, zeros)...)
			if err := os.WriteFile(path, dead, 0o600); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			e, _ := openFaulty(t, ledger.Config{Path: path, Process: 0xdef, Log: zerolog.New(&log)}, ledger.Faults{Sync: unsynced})
			u := use("c", 1)
			e.Add(&u)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, path); len(got) != 2 || got[1].Subject != "c" {
				t.Fatalf("after %d bytes and %d zeros: %+v", n, zeros, got)
			}
			if told := strings.Contains(log.String(), "removed half a usage event"); told != (n+zeros > 0) {
				t.Fatalf("log: %s", log.String())
			}
		}
	}
}

// Nothing is removed from a file that is not ours.
func TestNewEvents_C138_OtherFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"no newline": "key: value",
		"last line":  "first\nkey: value",
		"long":       `{"specversion":"1.0","type":"mete.usage.v1",` + strings.Repeat("x", 2<<20),
		"zeros":      strings.Repeat("\x00", 2<<20),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ledger.NewEvents(config(t, ledger.Config{Path: path}))
		if err == nil || !strings.Contains(err.Error(), "is not a usage event") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s has changed, %v", name, err)
		}
	}
	for _, path := range []string{os.DevNull, filepath.Join(dir, "none", "x"), dir} {
		if _, err := ledger.NewEvents(config(t, ledger.Config{Path: path})); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestNewEvents_C138_TwoProcessesDoNotShareAFile(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	if _, err := ledger.NewEvents(config(t, ledger.Config{Path: path})); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("%v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, ledger.Config{Path: path})
}

func TestEvents_Q49_IDsAreUniqueOverRestarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "usage.ndjson")
	for process := range uint64(5) {
		e, _ := open(t, ledger.Config{Path: path, Process: process + 1})
		for range 3 {
			u := use("a", 1)
			e.Add(&u)
			flush(t, e)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, path); len(got) != 15 || bill(got)["counted"] != 15 { // read looks at the ids
		t.Errorf("%+v", got)
	}
}

func TestReopen_GoesOnWithANewFile(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	u := use("a", 1)
	add := func() { e.Add(&u); flush(t, e) }
	add()
	if err := e.Reopen(); err != nil { // nothing was renamed
		t.Fatal(err)
	}
	add()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	add()
	if err := e.Reopen(); err != nil {
		t.Fatal(err)
	}
	add()
	rotated, fresh := read(t, path+".1"), read(t, path)
	if len(rotated) != 3 || len(fresh) != 1 || fresh[0].ID != "0000000000000abc-4" {
		t.Errorf("%+v, %+v", rotated, fresh)
	}
}

func TestReopen_C138_KeepsTheOldFileIfThereIsNoNewOne(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := e.Reopen(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	u := use("a", 1)
	e.Add(&u)
	flush(t, e)
	if got := read(t, path+".1"); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// What could not be written to the old file is written to the new one, as it was.
func TestReopen_Q49_C138_TakesAlongWhatWasNotWritten(t *testing.T) {
	t.Parallel()
	full := true
	e, path := openFaulty(t, ledger.Config{}, ledger.Faults{Write: func(f *os.File, b []byte) (int, error) {
		if !full {
			return f.Write(b)
		}
		n, _ := f.Write(b[:len(b)*2/3])
		return n, syscall.ENOSPC
	}})
	for _, tenant := range []string{"a", "b", "c"} {
		u := use(tenant, 1)
		e.Add(&u)
	}
	if err := e.Flush(); err == nil {
		t.Fatal("written")
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := e.Reopen(); err != nil {
		t.Fatal(err)
	}
	full = false
	flush(t, e)
	events := append(read(t, path+".1"), read(t, path)...)
	if len(events) != 3 || events[2].ID != "0000000000000abc-3" || bill(events)["counted"] != 3 {
		t.Errorf("%+v", events)
	}
}

// A program that copies a file away and empties it must not leave a hole in it.
func TestFile_C138_ATruncatedFileIsAppendedTo(t *testing.T) {
	t.Parallel()
	fail := false
	e, path := openFaulty(t, ledger.Config{}, ledger.Faults{
		Write: func(f *os.File, b []byte) (int, error) {
			if fail {
				n, _ := f.Write(b[:10])
				return n, syscall.ENOSPC
			}
			return f.Write(b)
		},
		Truncate: func(f *os.File, n int64) error {
			if fail {
				return syscall.EIO
			}
			return f.Truncate(n)
		},
	})
	u := use("a", 1)
	e.Add(&u)
	flush(t, e)
	fail = true
	e.Add(&u)
	if err := e.Flush(); err == nil {
		t.Fatal("written")
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	fail = false
	flush(t, e)
	if got := read(t, path); len(got) != 1 || got[0].ID != "0000000000000abc-2" {
		t.Errorf("%+v", got)
	}
}
