package rig

import "net/http"

// HTTP2 returns a client that speaks HTTP/2 without TLS, over a connection of its
// own. A request whose context ends is broken off by RST_STREAM. The caller must
// close its idle connections.
func HTTP2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{
		Transport:     &http.Transport{Protocols: protocols},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
