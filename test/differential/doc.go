// Package differential holds tests only. They send the same sequences of requests to mete and to a model of
// envoyproxy/ratelimit, which was written from what that service was seen to do and shares no code with mete, and demand that the
// two differ in nothing but the stated differences, each of which has a test of its own.
//
// With RATELIMIT_ADDR=HOST:PORT (gRPC) and RATELIMIT_CONFIG_DIR (the folder that it loads its files from and watches), a running
// envoyproxy/ratelimit gets the same kind of sequences and is held against the model, so that the model is known to be right.
// RATELIMIT_SEED=7 makes others of them.
package differential
