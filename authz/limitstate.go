package authz

import (
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/ratelimit"
)

// ofBucket notes how a bucket is, of which a request wants n tokens. Whether it is
// refused s knows already.
func (s *LimitState) ofBucket(b *ratelimit.Bucket, now, n int64) {
	s.Window, s.Left = s.Limit.Window, b.Left(now)
	wait := b.UntilFull(now)
	if s.Refused || s.Left == 0 {
		wait = b.Wait(now, n)
	}
	if s.Reset = wait; wait == ratelimit.Never {
		s.Reset = -1
	}
}

// ofQuota notes how a quota is, and returns its purse; nil if none is open.
func (s *LimitState) ofQuota(slot *slot, m moment) *quota.Purse {
	purse := slot.at(m.minute)
	window := slot.window // which at has made that of the purse
	if purse == nil {
		window = slot.calendar.Window(m.minute)
		s.Left = s.Limit.Amount
	} else {
		s.Used, s.Left, s.Reserved = purse.Used(), purse.Left(m.at), purse.Reserved(m.at)
	}
	s.WindowID, s.ResetsAt, s.Window = window.ID, window.End, window.End.Sub(window.Start)
	s.Reset = window.RetryAfter(m.now)
	return purse
}

// tooLarge notes that a quota of n units can never hold what was refused.
func (s *LimitState) tooLarge(asked, n int64) {
	if s.Refused && asked > n && s.Limit.Amount > 0 {
		s.Reset = -1 // waiting cannot help
	}
}
