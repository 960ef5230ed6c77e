// Package authz turns «who, which route, how much» into one [Decision].
//
// A request is charged to every bucket and every purse on the tenant's path, all
// of them or none (R17, R19, R20, case C030). Everything that a decision needs is
// in memory; a request waits in exactly one case, for the first lease of a purse
// that has nothing left, and then at most 300 ms (A19).
//
// The zero Decision refuses.
package authz
