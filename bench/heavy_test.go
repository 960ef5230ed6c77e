//go:build !race

package bench_test

// heavy tells that what takes a processor for seconds is played, too.
const heavy = true
