package main

import (
	"testing"
	"testing/fstest"
)

func TestMemory_TheLimitComesFromTheControlGroupOrTheMachine(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	machine := "MemTotal:       8388608 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		names int
	}{
		"nothing says":             {nil, 0, 0},
		"machine":                  {map[string]string{"proc/meminfo": machine}, 4 * gib, 65536},
		"version 2":                {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n"}, gib / 10 * 9, 14745},
		"an ancestor's":            {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2147483648\n"}, 2 * gib / 10 * 9, 29491},
		"of a container":           {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/../pod/x\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, gib / 10 * 9, 14745},
		"version 1":                {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/x\n0::/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824\n"}, gib / 10 * 9, 14745},
		"version 1, none":          {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, 4 * gib, 65536},
		"more than there is":       {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1099511627776\n"}, 4 * gib, 65536},
		"garbage":                  {map[string]string{"proc/meminfo": "MemTotal: much kB\n", "proc/self/cgroup": "::\nx\n0::/\n", "sys/fs/cgroup/memory.max": "-7"}, 0, 0},
		"so little that 1,000 are": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "10485760"}, 9437184, 1000},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if m := memoryOf(root); m.limit != c.want || m.names() != c.names || (m.source == "") != (c.want == 0) {
			t.Errorf("%s: %d bytes from %q for %d names, want %d bytes and %d names", name, m.limit, m.source, m.names(), c.want, c.names)
		}
	}
}

// What the settings say stands; what they leave open follows the memory.
func TestMemory_R31_BoundsFollowIt(t *testing.T) { //nolint:paralleltest // it sets the limit of the process
	root := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("1073741824\n")},
	}
	s := settings{config: config{MaxTenants: 7}}
	s.limitMemory(environment{Lookup: func(string) (string, bool) { return "", false }}, root)
	if s.MaxTenants != 7 || s.MaxCounters != 14745 {
		t.Errorf("%d tenants and %d counters, want 7 and 14,745", s.MaxTenants, s.MaxCounters)
	}
}
