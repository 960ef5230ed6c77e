package store

// For tests that build keys and accounts by hand.
var (
	EncodeAccount = encodeAccount
	DecodeAccount = decodeAccount
	LiableKey     = liableKey
	ReplicaKey    = replicaKey
	Supported     = supported
)

// Line tells whether requests of s are under way in batches, and how many operations
// wait meanwhile.
func (s *Accounts) Line() (busy bool, waiting int) {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return s.line.busy, len(s.line.waiting)
}
