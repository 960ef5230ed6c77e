package quota

// Reclaim folds the holders gone into a's base, as [Apply] does, without doing
// anything for another holder: for accounts that nobody touches any more. It returns
// the account after it, and how many units it gave back: what they had on lease and
// does not count as used. Holders that a does not have change nothing, so that a
// repeat returns 0 (A33, C101). The caller stores the result only if a is still
// as it was read and none of gone is liable.
func Reclaim(a Account, gone []string) (Account, int64) {
	n := a.without(gone, "")
	return n, a.Used() + a.Leased() - n.Used() - n.Leased()
}
