// Package rig runs what stands around a decision in the tests and the demo: mete
// as a process, and an API that tells what it was asked. Envoy is test/envoy's.
package rig
