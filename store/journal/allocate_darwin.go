package journal

import "os"

// allocate makes f size bytes long, with room on disk for each of them.
func allocate(f *os.File, size int) error { return zeros(f, size) }
