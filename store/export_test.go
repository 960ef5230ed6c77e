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
	s.lines[0].mu.Lock()
	defer s.lines[0].mu.Unlock()
	return s.lines[0].workers > 0, len(s.lines[0].waiting)
}

// Peers is what OnPeers would be told now.
func (m *Members) Peers() map[uint64]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers()
}
