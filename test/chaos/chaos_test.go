package main

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// A few seconds of everything at once. "make chaos" is the real thing.
func TestSmoke_A34_C101_C102_FaultsBreakNoPromise(t *testing.T) {
	var out bytes.Buffer
	r := &run{seed: 1, length: 3 * time.Second, out: &out}
	err := r.all(t.Context(), "faults")
	t.Logf("\n%s", &out)
	if err == nil {
		return
	}
	t.Error(err)
	if err := os.RemoveAll(r.dir); err != nil {
		t.Error(err)
	}
}
