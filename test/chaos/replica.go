package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/meteproject/mete/test/rig"
)

// A replica is one mete with its links to the members of the cluster. It keeps its
// data directory over a restart.
type replica struct {
	name    string
	binary  string
	dir     string
	history string // file that its operations are written to
	args    []string
	listen  string // address of its gRPC API; "": another one at each start
	links   []*link

	mete *rig.Mete
	logs []string // of earlier runs
	face atomic.Pointer[face]
}

// A face is how requests reach a running replica.
type face struct {
	conn   *grpc.ClientConn
	client authv3.AuthorizationClient
	limits rlsv3.RateLimitServiceClient
}

// start runs the replica, or runs it again, and returns once it is ready.
func (r *replica) start(ctx context.Context) error {
	args := append([]string{"--name", r.name}, r.args...)
	if r.listen != "" {
		args = append(args, "--grpc-listen", r.listen)
	}
	if len(r.links) > 0 {
		var ends []string
		for _, l := range r.links {
			ends = append(ends, "http://"+l.address())
		}
		args = append(args, "--etcd-endpoints", strings.Join(ends, ","))
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	m, err := rig.StartMeteWith(ctx, []string{"METE_HISTORY=" + r.history}, r.binary, r.dir, args...)
	if err != nil {
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	r.mete = m
	conn, err := grpc.NewClient(m.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(tripMarks{}))
	if err != nil {
		return err
	}
	r.face.Store(&face{conn, authv3.NewAuthorizationClient(conn), rlsv3.NewRateLimitServiceClient(conn)})
	return nil
}

// kill ends the replica as kill -9 does. No request goes to it until start.
func (r *replica) kill() {
	f := r.face.Swap(nil)
	_ = r.mete.Kill() // it may have ended by itself: then its log tells
	r.over(f)
}

// stop ends the replica in order; an error unless it has settled everything.
func (r *replica) stop() error {
	f := r.face.Swap(nil)
	err := r.mete.Stop()
	r.over(f)
	if err != nil {
		return fmt.Errorf("stop %s: %w", r.name, err)
	}
	return nil
}

// over is called once mete has ended.
func (r *replica) over(f *face) {
	if f != nil {
		_ = f.conn.Close()
	}
	r.logs = append(r.logs, r.mete.Log())
	r.mete = nil
}

// close ends whatever is left of the replica.
func (r *replica) close() {
	if r.mete != nil {
		r.kill()
	}
	for _, l := range r.links {
		l.close()
	}
}

// heal makes all links whole.
func (r *replica) heal() {
	for _, l := range r.links {
		l.set(whole, 0)
	}
}

// writeLog keeps what the replica has written, in a file.
func (r *replica) writeLog(dir string) error {
	logs := slices.Clone(r.logs)
	if r.mete != nil {
		logs = append(logs, r.mete.Log())
	}
	return os.WriteFile(filepath.Join(dir, "mete-"+r.name+".log"), []byte(strings.Join(logs, "\n--- started again ---\n")), 0o600)
}
