package store

import (
	"runtime"
	"slices"
	"sync"

	"github.com/meteproject/mete/plan"
)

// readChunk is how many documents one goroutine reads: some milliseconds of work.
const readChunk = 256

// read finds out what the text of an edit says.
func (c *candidate) read() { c.doc, c.problems = plan.DecodeOne(c.kind, c.name, "", c.text) }

// readAll reads candidates on all processors.
func readAll(cs []*candidate) {
	var r readings
	r.add(cs)
	r.wait()
}

// readings are candidates that are being read. A hundred thousand tenants are read
// at every start, while etcd is still sending more of them. The zero readings is
// ready to use; it is for one goroutine.
type readings struct {
	running sync.WaitGroup
	free    chan struct{} // holds one for each processor at work
}

// add begins to read candidates. Nobody looks at them before wait has returned.
func (r *readings) add(cs []*candidate) {
	if r.free == nil {
		r.free = make(chan struct{}, runtime.GOMAXPROCS(0))
	}
	for chunk := range slices.Chunk(cs, readChunk) {
		r.running.Go(func() {
			r.free <- struct{}{}
			for _, c := range chunk {
				c.read()
			}
			<-r.free
		})
	}
}

// wait returns once all that was added is read.
func (r *readings) wait() { r.running.Wait() }

// early begins to read the documents among changes of a full batch that are not
// known at their revision: the shelf then finds them read. What is enforced from a
// copy under effective/ is most often not read at all, and so left alone.
func (s *shelf) early(changes []change, r *readings) {
	var cs []*candidate
	for i := range changes {
		c := &changes[i]
		kind, name, ok := ParseDocumentKey(c.key)
		if !ok || Published(kind) {
			continue
		}
		id := docID{kind, name}
		if s.sources[id].revision == c.revision {
			continue
		}
		c.early = &candidate{docID: id, revision: c.revision, text: c.value()}
		cs = append(cs, c.early)
	}
	r.add(cs)
}
