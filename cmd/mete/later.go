package main

import (
	"context"
	"time"

	"github.com/meteproject/mete/store"
)

const (
	// mostLooked is how many rules wait to be told to the others; of more, the next look
	// at another replica, or after a restart, tells.
	mostLooked = 1000
	// tellLater bounds how long a try to tell one takes, and the pause after a failure.
	tellLater = 2 * time.Second
)

// noteLooked hands a rule that was looked at to tellLooked. It never blocks.
func (m *mete) noteLooked(path string) {
	select {
	case m.looked <- path:
	default:
		m.log.Warn().Str("rule", path).Msg("too many rules are settled later at once; the other replicas are not told of this one")
	}
}

// tellLooked tells the other replicas which rules are settled later, until ctx is done.
// While etcd is away it tries again.
func (m *mete) tellLooked(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case path := <-m.looked:
			m.tellRule(ctx, path)
		}
	}
}

func (m *mete) tellRule(ctx context.Context, path string) {
	for {
		try, cancel := context.WithTimeout(ctx, tellLater)
		err := store.PutSettledLater(try, m.etcd, path)
		cancel()
		if err == nil {
			m.log.Info().Str("rule", path).Msg("a look with 0 hits has matched this rule, so that its charges tell of use that happened: they count in full, beyond the limit too")
			return
		}
		if !pause(ctx, tellLater) {
			return
		}
	}
}
