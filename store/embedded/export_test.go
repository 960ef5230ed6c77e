package embedded

// A Space is a space.
type Space = struct{ Free, Total uint64 }

// WithSpace returns c, with what is to be known of its disk by look.
func (c Config) WithSpace(look func() Space) Config {
	c.space = func(string) (space, error) {
		s := look()
		return space{free: s.Free, total: s.Total}, nil
	}
	return c
}
