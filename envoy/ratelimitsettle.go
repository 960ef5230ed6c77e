package envoy

import (
	"context"
	"time"
)

// A rate limit descriptor can be the end of a request instead of its begin: Envoy's
// apply_on_stream_done sends it with a number from the response. The request is known
// by what the answer that admitted it left in the metadata.

// settleAll settles what the descriptors say was used. It does so even if the caller has
// gone: Envoy never sends them again.
func (s *Server) settleAll(ctx context.Context, now time.Time, c *limitCall) {
	for i := range c.items {
		d := &c.items[i]
		if d.to != toSettler {
			continue
		}
		_ = s.awaitSettling(ctx) // too early, it is told as forged, which is counted
		switch {
		case d.reservation == "":
			s.counters.unreserved.Add(1)
		case !d.own:
			// Not 1, as for a request: the route says no number, or says it in a
			// place where Envoy does not look.
			s.counters.unnumbered.Add(1)
		default:
			s.counters.settlements.Count(s.settler.SettleUnits(now, d.reservation, d.unit, d.hits, d.giveBack))
		}
	}
}
