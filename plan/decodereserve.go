package plan

import "slices"

// reserves reads what a rule takes of each unit.
func (o *object) reserves(n *node, path string, weight int64) []Reserve {
	var all []Reserve
	o.entries(n, path, func(key, value *node, path string) {
		if o.checkName(key, path, key.text) {
			all = append(all, o.object(value, path).reserve(key.text, weight))
		}
	})
	return all
}

// reserve reads what a route does with one unit. Of requests it takes its weight at
// least.
func (o *object) reserve(unit string, weight int64) Reserve {
	u := Reserve{Unit: unit}
	if unit == DefaultUnit {
		u.Amount = weight
		if !o.noMap && len(o.n.keys) == 0 {
			o.fail(o.n, o.path, "says nothing; write reserve or use, or leave it out, then the weight is reserved")
		}
		if n := o.field("reserve"); n != nil {
			v, _ := o.amount(n, o.at("reserve"))
			u.Amount = max(weight, v)
		}
	} else if n := o.require("reserve", "how many units a request sets aside"); n != nil {
		u.Amount, _ = o.amount(n, o.at("reserve"))
	}
	if n := o.field("max"); n != nil {
		if v, ok := o.whole(n, o.at("max"), 1, MaxAmount); ok {
			u.Max = v
			if v < u.Amount {
				o.fail(n, o.at("max"), "is below the %d that are reserved; write more", u.Amount)
			}
		}
	}
	use := o.field("use")
	if use != nil {
		u.Use = o.useSources(use, o.at("use"))
	}
	u.Unreported = choose(o, "unreported", UnreportedReserve, unreportedWords()...)
	if n := o.field("unreported"); n != nil && use == nil {
		o.fail(n, o.at("unreported"), "tells what counts where use finds nothing, and there is no use; write use or leave it out")
	}
	o.done()
	return u
}

func unreportedWords() []option[Unreported] {
	return []option[Unreported]{{"reserve", UnreportedReserve}, {"weight", UnreportedWeight}, {"zero", UnreportedZero}}
}

func (o *object) useSources(n *node, path string) []Source {
	var all []Source
	o.some(n, path, func(item *node, path string) {
		f := o.object(item, path)
		s := f.useSource()
		f.done()
		if s.Kind == SourceNone {
			return
		}
		if slices.ContainsFunc(all, s.equal) {
			o.fail(item, path, "is listed twice; keep one")
		} else if len(all) > 0 && all[len(all)-1].Kind == SourceReport {
			o.fail(item, path, "comes after report, and a report may come when all others have told; write report last")
		}
		all = append(all, s)
	})
	return all
}

// useSource reads where the number of used units comes from. Its kind is SourceNone
// where that is reported as wrong.
func (o *object) useSource() Source {
	early := "says who calls, not how much was used; use response_header, response_trailer, metadata or report"
	o.foreign = map[string]string{
		"api_key": early, "request_header": early, "jwt_claim": early, "peer_spiffe_id": early, "context_extension": early,
	}
	if len(o.n.keys) != 1 && !o.noMap {
		o.fail(o.n, o.path, "names %d sources; write one to each element", len(o.n.keys))
	}
	before := len(o.problems)
	var s Source
	for _, form := range []option[SourceKind]{{"response_header", SourceResponseHeader}, {"response_trailer", SourceResponseTrailer}} {
		if name := o.headerIn(form.word, ""); name != "" {
			s = Source{Kind: form.is, Name: name}
		}
	}
	if n := o.field("metadata"); n != nil {
		if text, ok := o.reader.text(n, o.at("metadata")); ok {
			s = Source{Kind: SourceMetadata}
			s.Name, s.Path = o.inMetadata(n, o.at("metadata"), text)
		}
	}
	if n := o.field("report"); n != nil {
		s = Source{Kind: SourceReport}
		if v, ok := o.reader.bool(n, o.at("report")); ok && !v {
			o.fail(n, o.at("report"), "false names no source; write true or leave it out")
		}
	}
	if len(o.problems) > before {
		return Source{}
	}
	return s
}
