package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

func startEtcd(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newImporter returns an importer of a folder that is called like a person would.
func newImporter(s *embedded.Server, out, errs io.Writer, paths ...string) *importer {
	c := &cli{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, now: time.Now, env: func(string) string { return "" },
		endpoints: []string{s.Endpoint()}, timeout: 10 * time.Second, output: "table",
	}
	return &importer{cli: c, paths: paths, source: "default", told: map[string]bool{}}
}

// A log is a stream that several goroutines may use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

// followIn runs --watch until the test ends.
func followIn(t *testing.T, im *importer, pace importPace) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- im.follow(ctx, pace) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("--watch ended with %v; want none after a signal", err)
		}
	})
}

func fast() importPace {
	return importPace{look: 5 * time.Millisecond, retry: 10 * time.Millisecond, repair: time.Hour}
}

func rule(domain, team string) string {
	return "domain: " + domain + "\ndescriptors:\n  - {key: team, value: " + team + ", rate_limit: {unit: day, requests_per_unit: 1}}\n"
}

// mapFolder writes a folder as Kubernetes mounts a config map.
func mapFolder(t *testing.T, root, revision string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(root, revision), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, filepath.Join(root, revision, name), text)
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			link(t, filepath.Join("..data", name), filepath.Join(root, name))
		}
	}
	link(t, revision, filepath.Join(root, "..data_tmp"))
	if err := os.Rename(filepath.Join(root, "..data_tmp"), filepath.Join(root, "..data")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // as the kubelet: links that lead nowhere go last
		if _, err := os.Stat(filepath.Join(root, e.Name())); err != nil {
			if err := os.Remove(filepath.Join(root, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// C002, P21: whatever becomes of the files, no replica is without a rule that the files
// before a change and those after it have, while documents come, go and change names.
func TestFollow_C002_P21_NoMomentWithoutRules(t *testing.T) {
	s := startEtcd(t)
	root := t.TempDir()
	mapFolder(t, root, "..1", map[string]string{"a.yaml": rule("shared", "red"), "b.yaml": rule("shared", "green")})
	var errs log
	im := newImporter(s, io.Discard, &errs, root)
	im.merge = true
	if err := im.once(t.Context()); err != nil {
		t.Fatal(err)
	}

	var replicas [2]struct {
		gaps log
		docs *store.Documents
	}
	for i := range replicas {
		r := &replicas[i]
		r.docs = store.NewDocuments(store.ClusterOf(s.Client()))
		r.docs.OnSnapshot = func(snap *plan.Snapshot) { lookForGap(snap, &r.gaps) }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.docs.Run(ctx) })
		defer func() { cancel(); wg.Wait() }()
		eventually(t, "a first snapshot", func() bool { return r.docs.Snapshot() != nil })
	}
	enforced := func(names ...string) func() bool {
		return func() bool {
			for i := range replicas {
				got := replicas[i].docs.Snapshot().Names(plan.KindRateLimits)
				if strings.Join(got, " ") != strings.Join(names, " ") || len(replicas[i].docs.Rejected()) > 0 {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "both documents in force", enforced("shared/a", "shared/b"))

	followIn(t, im, fast())
	for i, change := range []struct {
		files map[string]string
		want  []string
	}{
		{map[string]string{"c.yaml": rule("shared", "red"), "b.yaml": rule("shared", "green")}, []string{"shared/b", "shared/c"}},
		{map[string]string{"c.yaml": rule("shared", "green"), "b.yaml": rule("shared", "red")}, []string{"shared/b", "shared/c"}},
		{map[string]string{"one.yaml": rule("shared", "red") + strings.SplitAfter(rule("shared", "green"), "descriptors:\n")[1]}, []string{"shared/one"}},
		{map[string]string{"x.yaml": rule("shared", "green"), "y.yaml": rule("shared", "red")}, []string{"shared/x", "shared/y"}},
	} {
		before := strings.Count(errs.String(), " in 1 transaction, ")
		mapFolder(t, root, "..1"+string(rune('a'+i)), change.files)
		eventually(t, "import of "+strings.Join(change.want, " "), func() bool { return strings.Count(errs.String(), " in 1 transaction, ") > before })
		eventually(t, strings.Join(change.want, " "), enforced(change.want...))
		if got := strings.Count(errs.String(), " written in "); got != before+1 {
			t.Errorf("change %d was written in %d transactions; want 1:\n%s", i, got-before, errs.String())
		}
	}
	for i := range replicas {
		if gaps := replicas[i].gaps.String(); gaps != "" {
			t.Errorf("replica %d: %s", i, gaps)
		}
	}
}

// lookForGap notes which of both rules a snapshot lacks.
func lookForGap(snap *plan.Snapshot, gaps io.Writer) {
	d := snap.Domain("shared")
	for _, team := range []string{"red", "green"} {
		if d == nil || d.Table == nil {
			_, _ = io.WriteString(gaps, "no rules; ")
			return
		}
		if m, _ := d.Table.Match([]plan.DescriptorEntry{{Key: "team", Value: team}}, nil); m == nil || m.Limit == nil {
			_, _ = io.WriteString(gaps, team+" is not limited; ")
		}
	}
}

// P21: what others delete or change of an import's documents is put right; a document of
// their own that contradicts is told once, and the import goes on when it is gone.
func TestFollow_P21_TheStoreIsKeptRight(t *testing.T) {
	s := startEtcd(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "a.yaml"), rule("edge", "red"))
	key := store.DocumentKey(plan.KindRateLimits, "edge")
	stored := func(key string) string {
		r, err := s.Client().Get(t.Context(), key)
		if err != nil || len(r.Kvs) == 0 {
			return ""
		}
		return string(r.Kvs[0].Value)
	}
	var out, errs log
	im := newImporter(s, &out, &errs, root)
	followIn(t, im, importPace{look: 5 * time.Millisecond, retry: 10 * time.Millisecond, repair: 20 * time.Millisecond})
	eventually(t, "imported", func() bool { return strings.Contains(stored(key), "red") })
	if _, err := s.Client().Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	eventually(t, "written again", func() bool { return strings.Contains(stored(key), "red") })
	if _, err := s.Client().Put(t.Context(), key, rule("edge", "green")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "changed back", func() bool { return strings.Contains(stored(key), "red") })

	theirs := store.DocumentKey(plan.KindRateLimits, "edge/theirs")
	if _, err := s.Client().Put(t.Context(), theirs, rule("edge", "blue")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "a.yaml"), rule("edge", "blue"))
	eventually(t, "refusal", func() bool { return strings.Contains(errs.String(), "edge / team=blue: is in ") })
	write(t, filepath.Join(root, "b.yaml"), rule("other", "red")) // the folder is refused as a whole
	eventually(t, "another refusal", func() bool { return strings.Contains(errs.String(), "1 problem in 1 of 2 documents") })
	if got := stored(key) + stored(store.DocumentKey(plan.KindRateLimits, "other")); !strings.Contains(got, "red") || strings.Contains(got, "other") {
		t.Errorf("half of a refused folder was written: %s", got)
	}
	if n := strings.Count(errs.String(), "already; keep one"); n != 2 {
		t.Errorf("two states of the files were refused with %d remarks; want one each:\n%s", n, errs.String())
	}
	if _, err := s.Client().Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "imported", func() bool { return strings.Contains(stored(key), "blue") })
}

// C002: a state that only one reading finds is not imported.
func TestFollow_C002_TakesNoMomentBetween(t *testing.T) {
	s := startEtcd(t)
	root := t.TempDir()
	var out log
	f := &follower{importer: newImporter(s, &out, io.Discard, root), pace: importPace{look: time.Hour, retry: time.Hour, repair: time.Hour}}
	for i, tt := range []struct {
		file string
		want int // changes written by then
	}{
		{rule("edge", "one"), 0},
		{rule("edge", "two"), 0},
		{"", 0},
		{rule("edge", "two"), 0},
		{rule("edge", "two"), 1},
		{rule("edge", "two"), 1},
		{rule("edge", "one"), 1},
		{rule("edge", "one"), 2},
	} {
		write(t, filepath.Join(root, "a.yaml"), tt.file)
		if err := f.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "\n"); got != tt.want {
			t.Errorf("reading %d: %d changes are written; want %d:\n%s", i, got, tt.want, out.String())
		}
	}
}

// Etcd that does not answer is told once and tried until it does.
func TestFollow_P21_WaitsForEtcd(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a.yaml"), rule("edge", "red"))
	s := startEtcd(t)
	var out, errs log
	im := newImporter(s, &out, &errs, root)
	im.timeout = 20 * time.Millisecond
	im.endpoints = []string{"127.0.0.1:1"}
	ctx, cancel := context.WithCancel(t.Context())
	pace := importPace{look: time.Millisecond, retry: time.Millisecond, repair: time.Hour}
	f := &follower{importer: im, pace: pace}
	for range 5 {
		if err := f.look(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // past the retry
	}
	if n := strings.Count(errs.String(), "no answer"); n != 1 {
		t.Errorf("told %d times; want once:\n%s", n, errs.String())
	}
	im.timeout, im.endpoints = time.Minute, []string{s.Endpoint()}
	eventually(t, "imported", func() bool { return f.look(ctx) == nil && strings.Contains(out.String(), "ratelimits/edge created") })
	cancel()
	if err := im.follow(ctx, pace); err != nil {
		t.Errorf("got %v after a signal", err)
	}
}

// Somebody else writes a document between our read and our write.
func TestImport_LosesARace(t *testing.T) {
	s := startEtcd(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "a.yaml"), rule("edge", "red"))
	im := newImporter(s, io.Discard, io.Discard, root)
	r, err := readSteady(nil, im.paths)
	if err != nil {
		t.Fatal(err)
	}
	p := im.decode(r)
	if err := im.compare(t.Context(), s.Client(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Put(t.Context(), store.DocumentKey(plan.KindRateLimits, "edge"), rule("edge", "green")); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []string{"server", ""} { // one transaction: nothing is written
		im.dryRun = dryRun
		var f *failure
		if err := im.send(t.Context(), s.Client(), p); !errors.As(err, &f) || f.code != exitConflict {
			t.Errorf("dry run %q: got %v; want exit code %d", dryRun, err, exitConflict)
		}
	}
}

// Of several transactions the second one loses.
func TestImport_PartlyWritten(t *testing.T) {
	s := startEtcd(t)
	root := t.TempDir()
	for i := range importOps + 1 {
		write(t, filepath.Join(root, fmt.Sprintf("%02d.yaml", i)), rule(fmt.Sprintf("d%02d", i), "red"))
	}
	var errs log
	im := newImporter(s, io.Discard, &errs, root)
	r, err := readSteady(nil, im.paths)
	if err != nil {
		t.Fatal(err)
	}
	p := im.decode(r)
	if err := im.compare(t.Context(), s.Client(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Put(t.Context(), store.DocumentKey(plan.KindRateLimits, "d60"), rule("d60", "green")); err != nil {
		t.Fatal(err)
	}
	var f *failure
	if err := im.send(t.Context(), s.Client(), p); !errors.As(err, &f) || f.code != exitPartly || !strings.Contains(f.why, "60 of 61 documents") {
		t.Errorf("got %v; want exit code %d", err, exitPartly)
	}
	if !strings.Contains(errs.String(), "61 documents are more than etcd takes at once; they are written in 2 transactions") {
		t.Errorf("said %q", errs.String())
	}
	if err := im.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Client().Get(t.Context(), store.DocumentPrefix(plan.KindRateLimits), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || got.Count != importOps+1 {
		t.Errorf("%v documents after another import, %v", got, err)
	}
}
