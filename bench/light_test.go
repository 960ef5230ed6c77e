//go:build race

package bench_test

const heavy = false
