package store

import "time"

// roundTripsFor is how long the shortest of some round trips counts.
const roundTripsFor = 10 * time.Second

// roundTrips knows how far away an endpoint is: the shortest round trip of the last 10 to
// 20 s, since what is longer has waited for something. The zero value knows nothing.
type roundTrips struct {
	since     time.Time     // the present stretch of time
	now, last time.Duration // shortest of it, and of the one before; 0: none
}

func (r *roundTrips) add(at time.Time, took time.Duration) {
	r.turn(at)
	if took = max(took, 1); r.now == 0 || took < r.now {
		r.now = took
	}
}

// shortest returns the shortest, 0 if none is known.
func (r *roundTrips) shortest(at time.Time) time.Duration {
	r.turn(at)
	if r.now == 0 || r.last != 0 && r.last < r.now {
		return r.last
	}
	return r.now
}

// turn begins the next stretch of time when the present one is over. What was known last
// stays known while nothing is heard.
func (r *roundTrips) turn(at time.Time) {
	if at.Sub(r.since) < roundTripsFor || r.now == 0 {
		return
	}
	r.since, r.last, r.now = at, r.now, 0
}

// RoundTrip returns how long the preferred endpoint takes for an answer when it has
// little to do, drawn from the calls of the last seconds; 0 if it has not answered yet.
func (c *Cluster) RoundTrip() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.preferred.trips.shortest(time.Now()) //nolint:forbidigo // decides nothing that is stored
}
