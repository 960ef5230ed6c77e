package quota

// NewLocal returns a purse of which no store knows: the ceiling of its terms is all there
// is, on this replica alone, and nothing of it is ever reported. It refuses what is past
// that and needs no lease. Its methods are to be called under one lock, as those of every
// purse. The terms must not be nil.
func (k *Keeper) NewLocal(key Key, window Window, terms *Terms) *Purse {
	return &Purse{key: key, window: window, keeper: k, terms: terms, local: true}
}

// Local reports whether no store knows of p.
func (p *Purse) Local() bool { return p.local }

// localRoom is Room of a local purse.
func (p *Purse) localRoom(n int64) Verdict {
	if n > p.terms.Ceiling-p.used {
		return Spent
	}
	return Fits
}

// addLocal counts n units of a local purse, below 0 if they are given back.
func (p *Purse) addLocal(n int64) { p.used = max(0, min(p.used+n, MaxUnits)) }
