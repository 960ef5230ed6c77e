// Package servers replays spellings of paths at real servers: Go's ServeMux, nginx, WSGI
// servers and Express, as their authors ship them. What they serve as one route, mete must
// have charged and checked at least as that one.
//
// The servers' packages are pinned by wsgi/requirements.txt and express/package-lock.json;
// [Python] and [Node] install them. nginx comes from PATH.
package servers
