package quota_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// What is recovered leaves the memory, though the recovery goes on to be asked for its
// counts.
func TestRecovery_P68_SettledOrphansLeaveTheMemory(t *testing.T) {
	t.Parallel()
	var kept []weak.Pointer[[4096]byte]
	all := make([]quota.Orphan, 100)
	for i := range all {
		all[i] = orphan(3, 0)
		all[i].Key.Tenant, all[i].Holder, all[i].Wall = fmt.Sprint("t", i), "a1", time.Now().UnixNano()
		file := new([4096]byte)
		kept = append(kept, weak.Make(file))
		all[i].Keep = func(used, reported int64) error {
			file[0] = byte(used + reported)
			return nil
		}
	}
	r := quota.NewRecovery(quota.RecoveryConfig{Store: &storetest.Memory{}, Now: time.Now}, all)
	clear(all)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	for i, w := range kept {
		if w.Value() != nil {
			t.Fatalf("orphan %d is still in memory", i)
		}
	}
	if s := r.Stats(); s.Settled != 100 || s.Left != 0 {
		t.Errorf("%+v", s)
	}
}
