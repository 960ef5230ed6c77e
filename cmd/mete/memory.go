package main

import (
	"bytes"
	"context"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A memory is how much this process may take, and what says so.
type memory struct {
	limit  int64  // of Go's heap and all that belongs to it; 0: none is known
	source string // "" if nothing says
}

const (
	bytesPerName = 16 << 10 // of memory for each tenant or counter that is kept, with room for the garbage collector
	leastNames   = 1000
	mostNames    = 1_000_000
)

// names returns how many tenants, and as many counters, have room in a quarter of m each.
func (m memory) names() int {
	if m.limit == 0 {
		return 0
	}
	return int(max(leastNames, min(mostNames, m.limit/4/bytesPerName)))
}

// limitMemory gives Go's runtime a limit unless GOMEMLIMIT does, and fills in how many
// tenants and counters are kept where the settings leave it open. root is the root of the
// file system.
func (s *settings) limitMemory(env environment, root fs.FS) {
	s.memory = memory{debug.SetMemoryLimit(-1), "GOMEMLIMIT"} // below 0 it only tells
	if given, _ := env.Lookup("GOMEMLIMIT"); given == "" {
		s.memory = memoryOf(root)
		if s.memory.limit > 0 {
			debug.SetMemoryLimit(s.memory.limit)
		}
	}
	if s.memory.limit == math.MaxInt64 { // GOMEMLIMIT=off
		s.memory = memory{}
	}
	if s.MaxTenants == 0 {
		s.MaxTenants = s.memory.names()
	}
	if s.MaxCounters == 0 {
		s.MaxCounters = s.memory.names()
	}
}

// memoryOf returns nine tenths of what the control group of this process may take, or
// where there is none, or it is more, half of what the machine has.
func memoryOf(root fs.FS) memory {
	var m memory
	if have := machineMemory(root); have > 0 {
		m = memory{have / 2, "half of the machine's memory"}
	}
	if most := groupMemory(root); most > 0 && (m.limit == 0 || most/10*9 < 2*m.limit) {
		m = memory{most / 10 * 9, "nine tenths of the control group's memory"}
	}
	return m
}

// machineMemory returns the bytes that Linux counts as the machine's; 0 if nothing says.
func machineMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				return number(fields[0]) << 10
			}
		}
	}
	return 0
}

// groupMemory returns the least that a control group of this process may take, of version
// 1 or 2; 0 if none has a limit.
func groupMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	var least int64
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch {
		case fields[1] == "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case fields[0] != "0":
			continue
		}
		// In a container the path may be that of the machine, of which only the end is here.
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			n := groupLimit(root, path.Join(dir, at, file))
			if n > 0 && (least == 0 || n < least) {
				least = n
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// groupLimit reads a limit; 0: there is none. Version 1 writes "none" as a number that no
// machine has.
func groupLimit(root fs.FS, name string) int64 {
	const beyond = 1 << 60
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	if n := number(bytes.TrimSpace(text)); n < beyond {
		return n
	}
	return 0
}

func number(text []byte) int64 {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

const (
	// tidyEvery is how often what made-up names leave behind is looked through.
	tidyEvery = 5 * time.Second
	// tidyMany is how many dropped names are worth giving their memory back to the system at
	// once: the runtime by itself takes its time.
	tidyMany = 5000
)

// tidy drops what made-up names leave behind, and gives the memory of many back once no
// more go.
func (m *mete) tidy(ctx context.Context) error {
	dropped := 0
	for pause(ctx, tidyEvery) {
		n := m.decider.Tidy(time.Now())
		dropped += n
		if dropped >= tidyMany && n < tidyMany/10 {
			debug.FreeOSMemory()
			dropped = 0
		}
	}
	return ctx.Err()
}
