package main

import (
	"fmt"
	"io"
	"net/http"
)

// A printer writes lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
	n   int // steps titled so far
}

func (p *printer) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) title(format string, args ...any) {
	p.n++
	p.say("\n%d. %s", p.n, fmt.Sprintf(format, args...))
}

// reply shows a reply: its status, the headers named, and what a refusal says.
func (p *printer) reply(r *reply, headers ...string) {
	p.say("   HTTP %d %s", r.status, http.StatusText(r.status))
	for _, name := range headers {
		if value := r.header.Get(name); value != "" {
			p.say("   %s: %s", name, value)
		}
	}
	if r.refusal.Error == "" {
		return
	}
	wait := "" // who is not known has nothing to wait for
	if r.refusal.RetryAfter > 0 {
		wait = fmt.Sprintf("%q: %d, ", "retry_after", r.refusal.RetryAfter)
	}
	p.say("   {\"error\": %q, %s\"detail\": %q, ...}", r.refusal.Error, wait, r.refusal.Detail)
}
