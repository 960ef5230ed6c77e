//go:build !chaos

package main

import "github.com/meteproject/mete/quota"

// recorded returns s as it is. Only a mete that is built with the tag chaos writes
// a history of its operations, for test/chaos to check.
func recorded(s quota.Store) quota.Store { return s }
