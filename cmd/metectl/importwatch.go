package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"time"
)

// An importPace is how often --watch does what.
type importPace struct {
	look   time.Duration // reads the files; a state that two readings find is imported
	retry  time.Duration // tries again what may go better without a change of the files
	repair time.Duration // compares the store with files that have not changed
}

func newImportPace() importPace {
	return importPace{look: 500 * time.Millisecond, retry: 2 * time.Second, repair: 30 * time.Second}
}

// A follower keeps the store where the files are. It is for one goroutine.
type follower struct {
	*importer

	pace importPace
	seen [sha256.Size]byte // of the files, when they were last read
	done [sha256.Size]byte // of the files that were imported last, or refused
	due  time.Time         // when the files as they are want another look at the store
	said string            // the last failure; "": there is none
}

// follow imports now and whenever the files change, until ctx is done, which is no
// error. It is one if what was named does not exist at the start.
func (im *importer) follow(ctx context.Context, pace importPace) error {
	for _, path := range im.paths {
		if _, err := os.Stat(path); err != nil {
			return fileError("cannot import", err)
		}
	}
	f := &follower{importer: im, pace: pace}
	tick := time.NewTicker(pace.look)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := f.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// look reads the files and imports them if they have changed and rest, or if it is
// time to look at the store. What cannot be read is told and waited out.
func (f *follower) look(ctx context.Context) error {
	r, err := readImport(f.stdin, f.paths)
	var sum [sha256.Size]byte
	if err != nil {
		sum = sha256.Sum256([]byte(err.Error()))
	} else {
		sum = r.sum()
	}
	rests := sum == f.seen // else it may be a mere moment of a change
	f.seen = sum
	switch {
	case rests && err != nil:
		f.done = sum
		f.fail(ctx, err, "")
	case rests && (sum != f.done || !time.Now().Before(f.due)):
		return f.round(ctx, r)
	}
	return nil
}

// round imports one state of the files. It prints what it did, and what failed unless
// that was the last thing said.
func (f *follower) round(ctx context.Context, r *importReader) error {
	f.done, f.due = r.sum(), time.Now().Add(f.pace.repair)
	var remarks bytes.Buffer
	quiet := *f.cli
	quiet.stderr = &remarks
	im := *f.importer
	im.cli = &quiet
	p, err := im.write(ctx, r)
	if err != nil {
		f.fail(ctx, err, remarks.String())
		return nil
	}
	if p.changes() > 0 || f.said != "" {
		_, _ = f.stderr.Write(remarks.Bytes())
	}
	if f.said != "" && p.changes() == 0 {
		f.say("all is well again; the store has what the files say")
	}
	f.said = ""
	if err := f.printChanges(p); err != nil {
		return err
	}
	f.tell(p)
	return nil
}

// fail tells why an import failed, once for each reason. What is wrong with the files
// stays wrong until they change, or the store does; all else may go better soon.
func (f *follower) fail(ctx context.Context, err error, remarks string) {
	if ctx.Err() != nil {
		return
	}
	then := "what is in force stays in force until this is put right"
	if !errors.As(err, new(answer)) {
		f.due = time.Now().Add(f.pace.retry)
		then = "trying again until it works"
	}
	text := bytes.NewBufferString(remarks)
	report(ctx, text, err)
	if text.String() == f.said {
		return
	}
	f.said = text.String()
	f.say("%s%s", f.said, then)
}

// printChanges prints what an import changed, as JSON one object a line.
func (f *follower) printChanges(p *importPlan) error {
	var views []stepView
	for _, v := range p.views("") {
		if v.Result != "unchanged" {
			views = append(views, v)
		}
	}
	if f.output != "json" {
		return f.printViews(views)
	}
	for _, v := range views {
		if err := json.NewEncoder(f.stdout).Encode(v); err != nil {
			return err
		}
	}
	return nil
}
