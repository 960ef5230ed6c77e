package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
)

const (
	// diskEvery is how often the disk is looked at. Growth waits for a file of the log,
	// which has its 64 MiB beforehand, or for the database, see reserveDatabase.
	diskEvery = time.Second
	// leastFree is what has to be free for etcd to take writes: its next file of the log,
	// and half as much again. On a file system of less than 768 MiB it is an eighth.
	leastFree = 96 << 20
	// databaseAhead is how many bytes the database has beyond its end.
	databaseAhead = 16 << 20
)

// A space is what a file system has.
type space struct{ free, total uint64 }

// least returns what has to be free.
func (s space) least() uint64 { return min(leastFree, s.total/8) }

// A disk keeps etcd from writing to a disk that is about to be full: at a write that fails
// etcd ends the whole process. It is for one goroutine.
type disk struct {
	server *Server
	dir    string // of etcd
	log    zerolog.Logger
	look   func(dir string) (space, error)

	low      bool  // etcd takes no writes
	reserved int64 // size of the database that has its room beforehand
	told     bool  // that room cannot be reserved
}

// watch looks at the disk until ctx is done.
func (d *disk) watch(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		d.see(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// see stops writes, or lets them go on, as the disk is now.
func (d *disk) see(ctx context.Context) {
	s, err := d.look(d.dir)
	if err != nil {
		return // of that the next write tells
	}
	short := s.free < s.least()
	if !short {
		short = d.reserveDatabase()
	}
	switch {
	case short && !d.low:
		d.stop(ctx, s)
	case d.low && !short && s.free > s.least()+s.least()/3:
		d.goOn(ctx, s)
	}
}

func (d *disk) stop(ctx context.Context, s space) {
	if err := d.alarm(ctx, etcdserverpb.AlarmRequest_ACTIVATE); err != nil {
		d.log.Error().Err(err).Msg("the disk of the embedded etcd is nearly full, and its writes could not be stopped")
		return
	}
	d.low = true
	d.log.Error().Str("dir", d.dir).Uint64("free_bytes", s.free).Uint64("least_bytes", s.least()).
		Msg("the disk of the embedded etcd is nearly full: it takes no writes until there is room; leases and buckets go on, then on_unavailable decides")
}

func (d *disk) goOn(ctx context.Context, s space) {
	if err := d.alarm(ctx, etcdserverpb.AlarmRequest_DEACTIVATE); err != nil {
		d.log.Error().Err(err).Msg("the disk of the embedded etcd has room again, and its writes could not be let go on")
		return
	}
	d.low = false
	d.log.Info().Str("dir", d.dir).Uint64("free_bytes", s.free).Msg("the disk of the embedded etcd has room again: it takes writes")
}

// alarm sets or ends the alarm under which etcd takes no writes. It needs some bytes of
// the log and of the database, which have them.
func (d *disk) alarm(ctx context.Context, action etcdserverpb.AlarmRequest_AlarmAction) error {
	ctx, cancel := context.WithTimeout(ctx, diskEvery)
	defer cancel()
	etcd := d.server.etcd.Server
	_, err := etcd.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: action, MemberID: uint64(etcd.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("change the alarm of etcd: %w", err)
	}
	return nil
}

// reserveDatabase gives the database its room beforehand: it grows by writing into a hole,
// and would find out too late that the disk is full. It reports whether there is no room.
func (d *disk) reserveDatabase() (short bool) {
	path := filepath.Join(d.dir, "member", "snap", "db")
	info, err := os.Stat(path)
	if err != nil || info.Size() == d.reserved {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size()+databaseAhead) //nolint:gosec // a file descriptor fits into an int
	switch {
	case err == nil:
		d.reserved = info.Size()
	case errors.Is(err, unix.ENOSPC):
		return true
	case !d.told: // a file system that cannot: its free bytes alone are watched
		d.told = true
		d.log.Debug().Err(err).Msg("the file system cannot reserve room for the database of etcd")
	}
	return false
}

// spaceOf asks the file system.
func spaceOf(dir string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return space{}, fmt.Errorf("ask for the room of %s: %w", dir, err)
	}
	block := uint64(s.Bsize) //nolint:gosec // it is not below 0
	return space{free: s.Bavail * block, total: s.Blocks * block}, nil
}
