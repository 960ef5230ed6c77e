package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/peers"
)

const (
	// leastAge is how old a reservation has to be to be listed and forgiven unless its caller
	// says otherwise: of most younger ones the requests may run.
	leastAge = 10 * time.Minute
	// mostListed is how many reservations an answer names, of all that it counts.
	mostListed = 1000
	// mostForgiven bounds a body that names reservations.
	mostForgiven = 1 << 20
)

// A leftReservation is one that a process before this one has left unsettled.
type leftReservation struct {
	Decision  string       `json:"decision"`
	Process   string       `json:"process"`
	Made      time.Time    `json:"made"`
	App       string       `json:"app"`
	Principal string       `json:"principal,omitempty"`
	Charges   []leftCharge `json:"charges"`

	token string
	units []int64
}

// A leftCharge is a limit that it was charged to.
type leftCharge struct {
	Tenant string `json:"tenant"`
	Limit  string `json:"limit"`
	Unit   string `json:"unit"`
	Window string `json:"window,omitempty"` // none: a rate limit
	Units  int64  `json:"units"`
}

// leftList is what GET /v1/reservations answers.
type leftList struct {
	Reservations []leftReservation `json:"reservations"` // the oldest first, 1,000 at most
	Matching     int               `json:"matching"`     // of which those are
	Outstanding  int64             `json:"outstanding"`  // unsettled in all
	Unknown      int64             `json:"unknown"`      // of them, those that nothing but their number is known of
}

// A leftFilter says which reservations are meant.
type leftFilter struct {
	Decisions []string `json:"decisions"`
	Tenant    string   `json:"tenant"` // that one of the charges is of
	All       bool     `json:"all"`
	OlderThan string   `json:"older_than"` // 10m

	least time.Duration
	named map[string]bool // Decisions
}

// forgiven is what POST /v1/reservations/forgive answers.
type forgiven struct {
	Forgiven int      `json:"forgiven"`
	Settled  int      `json:"already_settled"` // of those that were named, or meanwhile
	Young    []string `json:"too_young,omitempty"`
	Unknown  []string `json:"unknown,omitempty"`
	Failed   int      `json:"not_settled,omitempty"` // too late, or nobody can tell whether they were settled

	Units map[string]int64 `json:"units"` // given back to quotas of tenants, by unit
}

// left returns what processes before this one have left and kept, settled ones too, each
// once.
func (m *mete) left(yield func(one *leftReservation, unsettled bool)) {
	if m.reserved == nil {
		return
	}
	type name struct{ process, number uint64 }
	seen := map[name]bool{}
	var r authz.Reservation
	for b := range m.reserved.Left() {
		token := string(b)
		unsettled, ok := m.decider.OpenLeft(token, &r)
		if !ok || seen[name{r.Replica, r.Number}] {
			continue
		}
		seen[name{r.Replica, r.Number}] = true
		one := &leftReservation{
			Decision: r.Decision.String(), Process: processName(r.Replica), Made: r.Decision.Time().UTC(),
			App: r.App, Principal: r.Principal, token: token,
		}
		for i := range r.Charges {
			c := &r.Charges[i]
			one.Charges = append(one.Charges, leftCharge{Tenant: c.Node, Limit: c.Limit, Unit: c.Unit, Window: c.Window, Units: c.Units})
			one.units = append(one.units, c.Units)
		}
		yield(one, unsettled)
	}
}

// check fills f in. It tells what is wrong.
func (f *leftFilter) check(forgiving bool) error {
	f.least = leastAge
	if f.OlderThan != "" {
		d, err := time.ParseDuration(f.OlderThan)
		if err != nil || d < 0 {
			return fmt.Errorf("older_than %q: not a duration such as 10m", f.OlderThan)
		}
		f.least = d
	}
	f.named = make(map[string]bool, len(f.Decisions))
	for i, d := range f.Decisions {
		id, err := authz.ParseID(d)
		if err != nil {
			return fmt.Errorf("decisions: %q: %w", d, err)
		}
		f.Decisions[i] = id.String()
		f.named[f.Decisions[i]] = true
	}
	if n := btoi(len(f.Decisions) > 0) + btoi(f.Tenant != "") + btoi(f.All); forgiving && n != 1 {
		return errors.New("name one of decisions, tenant and all")
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// matches reports whether f means one, whatever its age.
func (f *leftFilter) matches(one *leftReservation) bool {
	if len(f.Decisions) > 0 {
		return f.named[one.Decision]
	}
	return f.Tenant == "" || slices.ContainsFunc(one.Charges, func(c leftCharge) bool { return c.Tenant == f.Tenant })
}

// listLeft lists what f means and is not settled.
func (m *mete) listLeft(now time.Time, f *leftFilter) leftList {
	list := leftList{Reservations: []leftReservation{}, Outstanding: m.decider.Outstanding()}
	list.Unknown = list.Outstanding
	m.left(func(one *leftReservation, unsettled bool) {
		if !unsettled {
			return
		}
		list.Unknown = max(0, list.Unknown-1)
		if !f.matches(one) || now.Sub(one.Made) < f.least {
			return
		}
		list.Matching++
		list.Reservations = append(list.Reservations, *one)
		if len(list.Reservations) >= 2*mostListed {
			list.Reservations = oldest(list.Reservations)
		}
	})
	list.Reservations = oldest(list.Reservations)
	return list
}

// oldest returns the oldest of some reservations, sorted, as many as are listed.
func oldest(some []leftReservation) []leftReservation {
	slices.SortStableFunc(some, func(a, b leftReservation) int { return strings.Compare(a.Decision, b.Decision) })
	return some[:min(len(some), mostListed)]
}

// forgive settles what f means as if it had cost nothing.
func (m *mete) forgive(ctx context.Context, now time.Time, f *leftFilter) (done forgiven, err error) {
	done.Units = map[string]int64{}
	var claims []peers.Claim
	found := map[string]bool{}
	m.left(func(one *leftReservation, unsettled bool) {
		if !f.matches(one) {
			return
		}
		found[one.Decision] = true
		switch {
		case !unsettled && len(f.Decisions) > 0:
			done.Settled++
		case !unsettled:
		case now.Sub(one.Made) < f.least:
			if len(f.Decisions) > 0 {
				done.Young = append(done.Young, one.Decision)
			}
		default:
			claims = append(claims, peers.Claim{Token: one.token, Units: one.units})
		}
	})
	for _, d := range f.Decisions {
		if !found[d] {
			done.Unknown = append(done.Unknown, d)
		}
	}
	if len(claims) == 0 {
		return done, nil
	}
	if err := m.router.Claim(ctx, claims); err != nil {
		return done, err
	}
	for i := range claims {
		m.forgiveOne(now, &claims[i], &done)
	}
	m.log.Info().Int("reservations", done.Forgiven).Int("settled", done.Settled).Interface("units", done.Units).
		Msg("reservations of processes before this one are forgiven")
	return done, nil
}

// forgiveOne settles what has been claimed.
func (m *mete) forgiveOne(now time.Time, c *peers.Claim, done *forgiven) {
	var r authz.Reservation
	_, known := m.decider.OpenLeft(c.Token, &r)
	switch {
	case !known:
		done.Failed++
		return
	case c.Settled:
		done.Settled++
		return
	}
	switch m.decider.Forgive(now, &r) { //nolint:exhaustive // what is left is not a settlement
	case authz.SettledBefore:
		done.Settled++
	case authz.SettledLate, authz.SettledMalformed:
		done.Failed++
	default:
		done.Forgiven++
		for i := range r.Charges {
			if r.Charges[i].Window != "" {
				done.Units[strings.Clone(r.Charges[i].Unit)] += r.Charges[i].Units
			}
		}
	}
}

// serveLeft adds to the admin API what tells of and forgives reservations.
func (m *mete) serveLeft(mux *http.ServeMux) {
	var forgiving sync.Mutex // of two at once each would find what the other has claimed settled
	mux.HandleFunc("GET /v1/reservations", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f := leftFilter{Tenant: q.Get("tenant"), OlderThan: q.Get("older_than")}
		if err := f.check(false); err != nil {
			http.Error(w, "list reservations: "+err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, m.listLeft(time.Now(), &f))
	})
	mux.HandleFunc("POST /v1/reservations/forgive", func(w http.ResponseWriter, r *http.Request) {
		var f leftFilter
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostForgiven))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&f)
		if err == nil && decoder.Decode(new(any)) != io.EOF {
			err = errors.New("more than one JSON object")
		}
		if err == nil {
			err = f.check(true)
		}
		if err != nil {
			http.Error(w, "forgive reservations: "+err.Error(), http.StatusBadRequest)
			return
		}
		if !m.settles() {
			http.Error(w, "forgive reservations: this replica has just begun and is not ready; nothing was changed, try again", http.StatusServiceUnavailable)
			return
		}
		forgiving.Lock()
		// A caller that leaves does not end it: what was claimed by then would stay charged.
		done, err := m.forgive(context.WithoutCancel(r.Context()), time.Now(), &f)
		forgiving.Unlock()
		if err != nil {
			http.Error(w, "forgive reservations: "+err.Error()+"; nothing was given back: each replica may have settled some in the place of a killed one", http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, done)
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	_, _ = w.Write(append(text, '\n'))
}
