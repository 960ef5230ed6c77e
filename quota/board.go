package quota

import "context"

// A Board carries word between replicas about accounts that have nothing left
// (design 6.3). It is a help and no truth: what it loses costs a refusal that lasts
// as long as it is remembered (A35), and nothing else.
//
// Methods are safe for concurrent use. Keys are those of [Operation]; a board may
// leave the root out of what it tells.
type Board interface {
	// Recall asks every other holder of an account to return what it has not spent:
	// their [Keeper.Recalled] is called. A repeat asks again.
	Recall(ctx context.Context, key Key) error
	// Follow has [Keeper.Changed] called with the account whenever it changes, and
	// once with how it is now, until Unfollow. It does not wait. A repeat changes
	// nothing.
	Follow(key Key)
	Unfollow(key Key)
}
