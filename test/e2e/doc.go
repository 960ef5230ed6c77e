// Package e2e holds the end-to-end tests: a mete process, a real Envoy with the
// configuration of examples/envoy, an API behind it, and callers in front.
//
// One such world serves all tests at once. Each test has an app, tenants and keys
// of its own (see newApp) and so cannot disturb another. Tests that stop or
// configure mete itself start a world of their own.
//
// Tests carry the features and cases that they show in their names; coverage_test.go
// lists the features.
package e2e
