package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A Tariff says what a request costs once it has ended, as the documents said when it was
// admitted: an edit changes what later requests cost, and none that has begun. It never
// changes.
type Tariff struct {
	Count Count
	// Weight is what a unit counts as whose Unreported says so.
	Weight int64
	// Units are those whose use is looked for, in the order of the rule, without what was
	// reserved of them.
	Units []Reserve
}

// Unit returns what t says of a unit; nil: what was reserved is what is used.
func (t *Tariff) Unit(unit string) *Reserve {
	if t == nil {
		return nil
	}
	for i := range t.Units {
		if t.Units[i].Unit == unit {
			return &t.Units[i]
		}
	}
	return nil
}

// tariffOf returns the tariff of requests that r admits in an app that counts by count.
func (r *Rule) tariffOf(count *Count) *Tariff {
	t := &Tariff{Count: *count}
	for i := range r.Units {
		u := r.Units[i]
		if u.Use == nil {
			continue
		}
		u.Amount = 0
		t.Units = append(t.Units, u)
		if u.Unreported == UnreportedWeight {
			t.Weight = r.Weight
		}
	}
	return t
}

// tariffIDSize is the length of the id of a tariff.
const tariffIDSize = 16

// tariffID returns the id of the tariff that text says: equal ones have one, of whichever
// documents they are.
func tariffID(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:tariffIDSize*3/4])
}

// A tariffText is a tariff as it is stored: what it says is said as documents say it.
type tariffText struct {
	Count  countText `json:"count"`
	Weight int64     `json:"weight"`
	Units  unitsText `json:"units"`
}

type countText struct {
	Statuses     []string    `json:"statuses"`
	GRPCStatuses []int       `json:"grpc_statuses"`
	GRPCStatus   *sourceText `json:"grpc_status,omitempty"`
	Aborted      bool        `json:"aborted"`
	Unfinished   bool        `json:"unfinished"`
	Replays      bool        `json:"replays"`
	ReplayHeader string      `json:"replay_header"`
}

// unitsText are units by their names, in their order.
type unitsText []Reserve

// MarshalJSON implements [json.Marshaler].
func (u unitsText) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i := range u {
		name, _ := json.Marshal(u[i].Unit) // a string always can be
		value, err := json.Marshal(u[i].text())
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, name...), ':'), value...)
	}
	return append(text, '}'), nil
}

type reserveText struct {
	Reserve    int64        `json:"reserve"`
	Max        int64        `json:"max,omitempty"`
	Use        []sourceText `json:"use"`
	Unreported string       `json:"unreported"`
}

type sourceText struct {
	ResponseHeader  string `json:"response_header,omitempty"`
	ResponseTrailer string `json:"response_trailer,omitempty"`
	Metadata        string `json:"metadata,omitempty"`
	Report          bool   `json:"report,omitempty"`
}

// text returns what [decodeTariff] reads. Equal tariffs have equal texts.
func (t *Tariff) text() []byte {
	text, err := json.Marshal(tariffText{Count: t.Count.text(), Weight: t.Weight, Units: t.Units})
	if err != nil {
		panic("a tariff is not JSON: " + err.Error()) // it is made of strings and numbers
	}
	return text
}

func (c *Count) text() countText {
	text := countText{
		Statuses: []string{}, GRPCStatuses: []int{},
		Aborted: c.Aborted, Unfinished: c.Unfinished, Replays: c.Replays, ReplayHeader: c.ReplayHeader,
	}
	if c.GRPCStatus != nil {
		text.GRPCStatus = &sourceText{Metadata: c.GRPCStatus.metadata()}
	}
	left := c.Statuses
	for class := 1; class <= 5; class++ {
		var whole StatusSet
		whole.addClass(class)
		if left.hasAll(&whole) {
			text.Statuses = append(text.Statuses, strconv.Itoa(class)+"xx")
			for i := range left {
				left[i] &^= whole[i]
			}
		}
	}
	for status := http.StatusContinue; status <= 599; status++ {
		if left.Has(status) {
			text.Statuses = append(text.Statuses, strconv.Itoa(status))
		}
	}
	for status := range 32 {
		if c.HasGRPC(status) {
			text.GRPCStatuses = append(text.GRPCStatuses, status)
		}
	}
	return text
}

func (s *StatusSet) hasAll(other *StatusSet) bool {
	for i := range s {
		if other[i]&^s[i] != 0 {
			return false
		}
	}
	return true
}

func (r *Reserve) text() reserveText {
	text := reserveText{Max: r.Max, Use: []sourceText{}}
	for _, form := range unreportedWords() {
		if form.is == r.Unreported {
			text.Unreported = form.word
		}
	}
	for i := range r.Use {
		var s sourceText
		switch from := &r.Use[i]; from.Kind {
		case SourceResponseHeader:
			s.ResponseHeader = from.Name
		case SourceResponseTrailer:
			s.ResponseTrailer = from.Name
		case SourceMetadata:
			s.Metadata = from.metadata()
		case SourceReport:
			s.Report = true
		case SourceNone, SourceAPIKey, SourceRequestHeader, SourceJWTClaim, SourcePeerSPIFFE, SourceContextExtension, SourceClientAddress:
			// Never in a snapshot: they say who calls.
		}
		text.Use = append(text.Use, s)
	}
	return text
}

// metadata returns the place in metadata as documents write it.
func (s *Source) metadata() string { return s.Name + ":" + strings.Join(s.Path, ".") }

// decodeTariff reads the text of a tariff; nil if this version does not understand all of
// it.
func decodeTariff(text []byte) *Tariff {
	root, faults := parse(text)
	if root == nil || len(faults) > 0 {
		return nil
	}
	r := &reader{}
	o := r.object(root, "")
	t := &Tariff{}
	if n := o.require("count", "which requests cost"); n != nil {
		t.Count = r.object(n, "count").count()
	}
	if n := o.require("weight", "what the rule weighs"); n != nil {
		t.Weight, _ = r.amount(n, "weight")
	}
	if n := o.require("units", "the units that are looked for"); n != nil {
		t.Units = o.reserves(n, "units", 0)
	}
	o.done()
	if Refused(r.problems) {
		return nil
	}
	return t
}

// Settlement returns by what [Snapshot.Tariff] finds out how a request is settled that r
// admits: the rule's name and the id of its tariff. [RouteName] returns the name alone,
// and it is all where replicas below [CascadeLevel] may read it.
func (s *Snapshot) Settlement(r *Rule) string {
	if !s.cascades {
		return r.Name
	}
	return r.settlement
}

// RouteName returns the name of the rule that a settlement was returned for.
func RouteName(settlement string) string {
	name, _, _ := strings.Cut(settlement, ",")
	return name
}

// Tariff returns the tariff of a request of an app that was admitted by the rule which
// [Snapshot.Settlement] returned this for, and whether it is the one. It is not where
// nobody remembers what the documents said: then the app counts as it does now, and of
// each unit all sources are asked that any of its rules names. Without the app it is nil.
func (s *Snapshot) Tariff(app, settlement string) (t *Tariff, known bool) {
	name, ids, told := strings.Cut(settlement, ",")
	if !told {
		if e := s.apps.entries[app]; e != nil && e.app != nil {
			if id, there := e.routes.tariffNamed(name); there {
				return s.tariffs.entries[id], true
			}
		}
		return s.guess(app), false
	}
	id, parts, several := strings.Cut(ids, ",")
	t, known = s.tariffs.entries[id]
	switch {
	case several && len(id) == tariffIDSize:
		return s.severalTariffs(app, t, parts)
	case known:
		return t, true
	}
	return s.guess(app), false
}

// severalTariffs returns the tariff of a rule that is made of several: that of first, nil
// if it is not known, but of the units of each part "unit=ID" what that tariff says.
func (s *Snapshot) severalTariffs(app string, first *Tariff, parts string) (t *Tariff, known bool) {
	guess := s.guess(app)
	all := &Tariff{}
	switch {
	case first != nil:
		all.Count, all.Weight = first.Count, first.Weight
	case guess == nil:
		return nil, false
	default:
		all.Count, all.Weight = guess.Count, guess.Weight
	}
	known = first != nil
	for part := range strings.SplitSeq(parts, ",") {
		unit, id, said := strings.Cut(part, "=")
		if !said {
			continue // none is looked for
		}
		from, there := s.tariffs.entries[id]
		if !there {
			from, known = guess, false
		}
		if u := from.Unit(unit); u != nil {
			all.Units, all.Weight = append(all.Units, *u), max(all.Weight, from.Weight)
		}
	}
	return all, known
}

// guess returns the tariff of requests of which nobody knows by which rule they were
// admitted; nil if there is no such app.
func (s *Snapshot) guess(app string) *Tariff {
	e := s.apps.entries[app]
	if e == nil || e.app == nil {
		return nil
	}
	return e.routes.guess
}

// guessed makes the guess of an app with these rules.
func guessed(count *Count, rules []*Rule) *Tariff {
	t := &Tariff{Count: *count}
	for _, r := range rules {
		for i := range r.Units {
			if from := &r.Units[i]; from.Use != nil {
				t.ask(from)
			}
		}
	}
	for i := range t.Units { // what the app reports may come when all others have told
		slices.SortStableFunc(t.Units[i].Use, func(a, b Source) int { return btoi(a.Kind == SourceReport) - btoi(b.Kind == SourceReport) })
	}
	return t
}

// ask adds the sources of u to those that are asked for its unit.
func (t *Tariff) ask(u *Reserve) {
	all := t.Unit(u.Unit)
	if all == nil {
		t.Units = append(t.Units, Reserve{Unit: u.Unit})
		all = &t.Units[len(t.Units)-1]
	}
	for i := range u.Use {
		if !slices.ContainsFunc(all.Use, u.Use[i].equal) {
			all.Use = append(all.Use, u.Use[i])
		}
	}
}

// equal reports whether s and other are one place of a number.
func (s *Source) equal(other Source) bool {
	return s.Kind == other.Kind && s.Name == other.Name && slices.Equal(s.Path, other.Path)
}
