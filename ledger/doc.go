// Package ledger writes down what tenants have used, as usage events (Q49): CloudEvents
// 1.0, one JSON object a line, from which a bill is made. docs/usage-events.md is their
// description for those who read them.
//
// Use is summed in memory, by everything that an event tells of it, and written once a
// second. So the file grows with the number of combinations in use, not with requests,
// and nobody who adds use waits for a disk.
//
// A unit is in exactly one line, and no two lines have the same id, over restarts too.
// What is not written is counted.
package ledger
