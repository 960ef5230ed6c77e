// Package ratelimit decides whether one more request fits under a rate.
//
// A [Bucket] holds tokens and refills continuously. The arithmetic is in whole
// tokens and whole nanoseconds with the remainder kept, so nothing is lost to
// rounding however often or seldom a bucket is asked (cases C033, C036). Time is
// an argument: nanoseconds of a clock that never goes back, from any origin.
package ratelimit
