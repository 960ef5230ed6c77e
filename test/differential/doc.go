// Package differential holds tests only. They send the same sequences of requests to mete and to a model of
// envoyproxy/ratelimit, which was written from what that service was seen to do and shares no code with mete, and demand that the
// two differ in nothing but a short list of stated differences.
//
// With RATELIMIT_ADDR=HOST:PORT (gRPC) and RATELIMIT_CONFIG_DIR (the directory that it loads its files from and watches), a running
// envoyproxy/ratelimit gets the same sequences and is held against the model, so that the model is known to be right.
package differential
