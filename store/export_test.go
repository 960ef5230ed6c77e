package store

// For tests that build keys and accounts by hand.
var (
	EncodeAccount = encodeAccount
	DecodeAccount = decodeAccount
	LiableKey     = liableKey
	ReplicaKey    = replicaKey
	Supported     = supported
)
