package authz

import (
	"context"
	"time"
)

// countScratch is memory that a Count keeps for the next one.
type countScratch struct{}

func (s countScratch) reset() countScratch { return s }

// CountDescriptors fills c, which must be Reset, with the answer to the descriptors of
// one request to a rate limit domain. All limits are charged or, if one refuses, none
// (case C030), unless the domain's refused hits are charged. It waits for leases as
// Decide does.
//
// onlyLook charges nothing and refuses as if it did: something else refuses the request
// already.
func (d *Decider) CountDescriptors(ctx context.Context, now time.Time, domain string, asks []DescriptorAsk, onlyLook bool, c *Count) {
}

// GiveBackCount undoes what c charged, for an answer that nobody will hear. A repeat
// changes nothing.
func (d *Decider) GiveBackCount(now time.Time, c *Count) {}
