package plan

// A gist is what can be read of a document that was never valid: whose requests it is
// about, and what it wants for them while nothing can be counted.
type gist struct {
	domain        string // of an App; "": none, or it cannot be read
	onUnavailable Choice // never ChoiceUnset
}

// gistOf reads the gist of a document of a kind. Of a text that cannot be read at all it
// is the default. What is written as on_unavailable and says neither allow nor deny
// counts as the stricter one.
func gistOf(kind Kind, text []byte) gist {
	g := gist{onUnavailable: Allow}
	root, faults := parse(text)
	if root == nil || len(faults) > 0 {
		return g
	}
	settings := root.value("mete")
	if kind == KindApp {
		spec := root.value("spec")
		settings = spec.value("defaults")
		if n := spec.value("envoy").value("domain"); n != nil && n.kind == stringNode {
			g.domain = n.text
		}
	}
	if n := settings.value("on_unavailable"); n != nil && n.text != "allow" {
		g.onUnavailable = Deny
	}
	return g
}

// standIn is what stands in for an app that was never valid: it has no limits, no
// identity and nothing to send, but says how its requests are decided.
func (g gist) standIn(name, why string) *App {
	return &App{
		Name: name, Domain: g.domain, NeverValid: why,
		Count: DefaultCount(), Headers: Headers{RateLimit: Never, XEnvoyRateLimited: true},
		Defaults: Defaults{OnUnavailable: g.onUnavailable, Replicas: Full},
	}
}
