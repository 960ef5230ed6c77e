package quota

// A review is a planned look at a purse.
type review struct {
	at    int64 // monotonic time
	purse *Purse
}

// A reviewHeap holds reviews, the earliest first. A purse may stand in it more
// than once: a look too many does no harm.
type reviewHeap []review

func (h *reviewHeap) push(r review) {
	*h = append(*h, r)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].at <= s[i].at {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *reviewHeap) pop() review {
	s := *h
	first := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s[last] = review{}
	*h = s[:last]
	h.sink()
	return first
}

func (h *reviewHeap) sink() {
	s := *h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s); child++ {
			if s[child].at < s[least].at {
				least = child
			}
		}
		if least == i {
			return
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}
