package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// C111: keys that are not documents are found wherever they lie, and nothing else.
func TestStrayKeys_C111_WhatIsNoDocument(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	for _, kind := range store.Kinds() {
		put(t, c, store.DocumentKey(kind, "name"), "x")
		put(t, c, store.EffectiveKey(kind, "name"), "x")
		put(t, c, store.StatusKey(kind, "name"), "x")
	}
	put(t, c, store.RecallsPrefix+"x", "x")
	for i := range 150 {
		put(t, c, store.DocumentKey(plan.KindRateLimits, fmt.Sprintf("a%d", i)), "x")
	}
	if keys, more, err := store.StrayKeys(t.Context(), c); err != nil || more || len(keys) != 0 {
		t.Errorf("of a store in order: %q, %v, %v", keys, more, err)
	}
	want := []string{"/mete/v1/a", "/mete/v1/plan/free", "/mete/v1/plans/pro/notes", "/mete/v1/ratelimits/", "/mete/v1/statex", "/mete/v1/zz"}
	for _, key := range want {
		put(t, c, key, "x")
	}
	if keys, more, err := store.StrayKeys(t.Context(), c); err != nil || more || !slices.Equal(keys, want) {
		t.Errorf("got %q, %v, %v", keys, more, err)
	}
	for i := range 101 {
		put(t, c, fmt.Sprintf("/mete/v1/plan/%d", i), "x")
	}
	if keys, more, err := store.StrayKeys(t.Context(), c); err != nil || !more || len(keys) != 100 {
		t.Errorf("of many: %d, %v, %v", len(keys), more, err)
	}
}
