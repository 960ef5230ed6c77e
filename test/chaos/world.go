package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// What a world leaves in its directory, beside logs.
const (
	historyFile = "history.jsonl"
	booksFile   = "revisions.jsonl"
)

// A world is what a scenario plays in: an etcd cluster, replicas with a link to each
// member, and the books of all that etcd ever held.
type world struct {
	dir      string
	cluster  *cluster
	replicas []*replica
	books    *books
	truth    *truth
}

// A worldConfig says what a world is made of.
type worldConfig struct {
	members, replicas int
	args              []string // of mete
	plans             []planDoc
	more              []clientv3.Op // further documents
	keepPorts         bool          // a replica has its gRPC port again when it starts again
}

// newWorld starts a world below the run's directory and returns once its documents
// are in force everywhere. The caller must close it.
func (r *run) newWorld(ctx context.Context, name string, cfg worldConfig) (_ *world, err error) {
	w := &world{dir: filepath.Join(r.dir, name), truth: newTruth()}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.cluster, err = startCluster(ctx, r.etcd, w.dir, cfg.members); err != nil {
		return nil, err
	}
	w.books = openBooks(ctx, w.cluster.client)
	if err := w.cluster.commit(ctx, append(documents(cfg.plans), cfg.more...)...); err != nil {
		return nil, err
	}
	for i := range cfg.replicas {
		if err := w.addReplica(r, fmt.Sprintf("r%d", i), cfg.args); err != nil {
			return nil, err
		}
	}
	if cfg.keepPorts {
		if err := w.keepPorts(); err != nil {
			return nil, err
		}
	}
	return w, w.start(ctx)
}

// keepPorts gives every replica a port of its own.
func (w *world) keepPorts() error {
	ports, err := freePorts(len(w.replicas))
	if err != nil {
		return err
	}
	for i, r := range w.replicas {
		r.listen = fmt.Sprintf("127.0.0.1:%d", ports[i])
	}
	return nil
}

// newLoneWorld starts one mete with an etcd of its own, which keeps its ports. It has no
// books: etcd ends whenever mete does. The caller must close it.
func (r *run) newLoneWorld(ctx context.Context, name string, args ...string) (_ *world, err error) {
	w := &world{dir: filepath.Join(r.dir, name), truth: newTruth(), cluster: &cluster{}}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	etcd := fmt.Sprintf("127.0.0.1:%d", ports[0])
	if err := w.addReplica(r, "r0", append(args, "--etcd-listen", etcd)); err != nil {
		return nil, err
	}
	one := w.replicas[0]
	if err := errors.Join(w.keepPorts(), one.start(ctx), w.cluster.connect(ctx, etcd)); err != nil {
		return nil, err
	}
	if err := w.cluster.commit(ctx, append(documents([]planDoc{outcomesPlan()}), outcomesDocuments()...)...); err != nil {
		return nil, err
	}
	return w, w.ready(ctx, one)
}

func (w *world) addReplica(r *run, name string, args []string) error {
	one := &replica{name: name, binary: r.mete, dir: filepath.Join(w.dir, name), history: w.history(), args: args}
	w.replicas = append(w.replicas, one)
	for _, m := range w.cluster.members {
		l, err := newLink(m.client)
		if err != nil {
			return err
		}
		one.links = append(one.links, l)
	}
	return nil
}

// history is the file that all replicas write their operations to.
func (w *world) history() string { return filepath.Join(w.dir, historyFile) }

// start starts all replicas and waits until each has all documents.
func (w *world) start(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range w.replicas {
		g.Go(func() error {
			if err := r.start(ctx); err != nil {
				return err
			}
			return w.ready(ctx, r)
		})
	}
	return g.Wait()
}

// ready waits until a replica allows what it should: it has the documents, and etcd
// answers it.
func (w *world) ready(ctx context.Context, r *replica) error {
	return retry(ctx, 30*time.Second, r.name+" does not serve", func(ctx context.Context) error {
		if a := w.truth.ask(ctx, r, probe, 7); a != allowed {
			return fmt.Errorf("the answer to %s is %d, want %d", probe, a, allowed)
		}
		return nil
	})
}

// settle stops all replicas in order, each of which reports all that it knows, and
// waits for the books to be complete.
func (w *world) settle(ctx context.Context) error {
	var g errgroup.Group
	for _, r := range w.replicas {
		if r.mete != nil {
			g.Go(r.stop)
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	last, err := w.cluster.revision(ctx)
	if err != nil {
		return err
	}
	return w.books.upTo(ctx, last)
}

// close ends whatever runs, and keeps its logs in the world's directory.
func (w *world) close() error {
	var errs []error
	if w.books != nil {
		w.books.close()
		errs = append(errs, w.books.write(filepath.Join(w.dir, booksFile)))
	}
	for _, r := range w.replicas {
		errs = append(errs, r.writeLog(w.dir))
		r.close()
	}
	if w.cluster != nil {
		w.cluster.close()
	}
	return errors.Join(errs...)
}
