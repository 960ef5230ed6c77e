package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPartsStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newParts()
		var order []string // each part writes it only while it alone is stopped
		for _, name := range []string{"a", "b", "c"} {
			ps.start(t.Context(), name, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second) // no earlier part is stopped meanwhile
				order = append(order, name)
				return ctx.Err()
			})
		}
		ps.atStop(t.Context(), "d", func() error {
			order = append(order, "d")
			return nil
		})
		if err := ps.stop(); err != nil {
			t.Error(err)
		}
		if want := []string{"d", "c", "b", "a"}; !slices.Equal(order, want) {
			t.Errorf("stopped %v, want %v", order, want)
		}
		select {
		case err := <-ps.failed:
			t.Errorf("a stop is no failure: %v", err)
		default:
		}
	})
}

func TestPartsFail(t *testing.T) {
	boom := errors.New("boom")
	for _, row := range []struct {
		name string
		run  func(context.Context) error
		want string
	}{
		{"error", func(context.Context) error { return boom }, "p: boom"},
		{"early end", func(context.Context) error { return nil }, "p: ended by itself"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ps := newParts()
			ps.start(t.Context(), "other", func(ctx context.Context) error { <-ctx.Done(); return nil })
			ps.start(t.Context(), "p", row.run)
			if err := <-ps.failed; err.Error() != row.want {
				t.Errorf("%s: got %v, want %s", row.name, err, row.want)
			}
			if err := ps.stop(); err == nil || err.Error() != row.want {
				t.Errorf("%s: stop returns %v, want %s", row.name, err, row.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ps := newParts()
		ps.atStop(t.Context(), "p", func() error { return boom })
		if err := ps.stop(); !errors.Is(err, boom) {
			t.Errorf("an error while stopping: %v", err)
		}
	})
}

// What several parts have to say at a stop is all said.
func TestParts_C138_EveryErrorIsTold(t *testing.T) {
	t.Parallel()
	ps := newParts()
	ps.atStop(t.Context(), "file", func() error { return errors.New("5 events are lost") })
	ps.atStop(t.Context(), "events", func() error { return errors.New("no space left") })
	if err := ps.stop(); err == nil || err.Error() != "events: no space left\nfile: 5 events are lost" {
		t.Errorf("%v", err)
	}
}
