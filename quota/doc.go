// Package quota lets many replicas spend from one quota without asking before
// each request.
//
// One rule holds for every account at every moment, whichever replica dies and
// whichever message is lost:
//
//	used + units out on lease ≤ ceiling
//
// save for the closed list of overshoot causes (features A43 to A49, [Cause]).
// An [Account] is the shared state, changed by one pure function, [Apply], through
// a [Store] that compares before it swaps. A [Purse] is one replica's side of an
// account: charging it is arithmetic in memory. The [Keeper] keeps purses filled
// behind the requests' back.
//
// The package is pure: it does no I/O of its own and reads no clock but the Now
// that it is given.
package quota
