//go:build !race

package envoy_test

const raceEnabled = false
