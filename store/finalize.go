package store

import (
	"context"
	"fmt"

	"github.com/meteproject/mete/plan"
)

// A BehindError says why a store cannot need a feature level yet: a live replica has a
// lower one, or does not say which.
type BehindError struct {
	Level int
	Why   string
}

// Error implements error.
func (e *BehindError) Error() string {
	return fmt.Sprintf("the store cannot need feature level %d: %s", e.Level, e.Why)
}

// FinalizeUpgrade makes the store need the feature level of this build, so that what
// versions of the level newly mean comes into force and no older version starts any
// more. It returns what the store needed before; a repeat changes nothing. The error is
// a [*BehindError] while a live replica has a lower level, and [ErrChanged] if replicas
// came or went meanwhile.
func FinalizeUpgrade(ctx context.Context, kv Doer) (Minimum, error) {
	const level = plan.FeatureLevel
	if _, err := Writable(ctx, kv); err != nil {
		return Minimum{}, err
	}
	f := newFleet()
	r, err := txn(ctx, kv, nil, f.reads(level), nil)
	if err != nil {
		return Minimum{}, fmt.Errorf("read the live replicas: %w", err)
	}
	f.renew(level, r)
	before := f.minimum
	if before.Level >= level {
		return before, nil
	}
	if why := f.behind(level); why != "" {
		return before, &BehindError{level, why}
	}
	r, err = txn(ctx, kv, f.guards(level), f.raise(level), nil)
	switch {
	case err != nil:
		return before, fmt.Errorf("raise %s: %w", MinimumKey, err)
	case !r.Succeeded:
		return before, fmt.Errorf("raise %s: %w", MinimumKey, ErrChanged)
	}
	return before, nil
}
