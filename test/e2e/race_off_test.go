//go:build !race

package e2e_test

// raceBuild is whether these tests, and so mete, run under the race detector.
const raceBuild = false
