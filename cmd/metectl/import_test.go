package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// swapCommand makes a link lead elsewhere, at once as Kubernetes does: swap LINK TO.
func swapCommand(ts *testscript.TestScript, _ bool, args []string) {
	link := ts.MkAbs(args[0])
	ts.Check(os.Symlink(args[1], link+".new"))
	ts.Check(os.Rename(link+".new", link))
}

// noKeyCommand checks that a key does not exist: nokey KEY.
func noKeyCommand(ts *testscript.TestScript, _ bool, args []string) {
	r, err := serverOf(ts).Client().Get(context.Background(), args[0])
	ts.Check(err)
	if len(r.Kvs) > 0 {
		ts.Fatalf("%s exists: %s", args[0], r.Kvs[0].Value)
	}
}

// waitFileCommand waits until a file has a text in it: waitfile FILE TEXT.
func waitFileCommand(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(text), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s is %q after 30 s", args[0], text)
		}
	}
}

// waitKeyCommand waits until the value of a key has a text in it, or has none:
// waitkey KEY TEXT, ! waitkey KEY TEXT.
func waitKeyCommand(ts *testscript.TestScript, neg bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r, err := serverOf(ts).Client().Get(context.Background(), args[0])
		ts.Check(err)
		has := len(r.Kvs) > 0 && strings.Contains(string(r.Kvs[0].Value), args[1])
		if has != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s is %v after 30 s", args[0], r.Kvs)
		}
	}
}
