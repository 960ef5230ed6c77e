package plan

import "slices"

// classes reads the classes of an app with these signed headers and units.
func (o *object) classes(n *node, path string, headers []SignedHeader, units []Unit) []Class {
	var all []Class
	open := "" // the first class that matches always
	names := map[string]bool{}
	o.elements(n, path, func(item *node, path string) {
		f := o.object(item, path)
		c := Class{Meter: true, Check: true}
		if name := f.require("name", "the name of the class"); name != nil {
			c.Name, _ = f.readName(name, f.at("name"))
			if names[c.Name] && c.Name != "" {
				f.fail(name, f.at("name"), "another class is called %s; choose another name", c.Name)
			}
			names[c.Name] = true
		}
		always := true
		if when := f.field("when"); when != nil {
			always = f.object(when, f.at("when")).when(&c, headers)
		}
		c.Meter, c.Check, c.Reason = f.exemption()
		f.stillSpends(&c, units)
		f.done()
		if open != "" {
			o.warn(item, path, "nobody is in this class: %s before it has no condition; write it last", open)
		} else if always && c.Name != "" {
			open = c.Name
		}
		all = append(all, c)
	})
	if open == "" && len(all) > 0 {
		o.warn(n, path, "a caller that meets no condition is in no class; write one without \"when\" last")
	}
	return all
}

// stillSpends reads which units a free class pays for all the same.
func (o *object) stillSpends(c *Class, units []Unit) {
	c.StillSpends = o.texts("still_spends")
	n := o.field("still_spends")
	if n != nil && (c.Meter || c.Check) {
		o.fail(n, o.at("still_spends"), "belongs to classes with meter: false and check: false, which spend nothing else; write both or leave it out")
		return
	}
	for _, name := range c.StillSpends {
		switch {
		case name == DefaultUnit:
			o.fail(n, o.at("still_spends"), "requests are what the class is free of; name another unit")
		case !slices.ContainsFunc(units, func(u Unit) bool { return u.Name == name }):
			o.fail(n, o.at("still_spends"), "the app has no unit %s; declare it in spec.units", short(name))
		}
	}
}

// when reads the conditions of a class and reports whether there are none.
func (o *object) when(c *Class, headers []SignedHeader) (always bool) {
	always = len(o.n.keys) == 0
	c.CredentialPrefix = o.texts("credential_prefix")
	if n := o.field("jwt_claim_present"); n != nil {
		if s, ok := o.reader.text(n, o.at("jwt_claim_present")); ok {
			c.JWTClaimPresent = o.claim(n, o.at("jwt_claim_present"), s)
		}
	}
	c.PeerSPIFFE = o.text("peer_spiffe_id")
	if n := o.field("signed_header"); n != nil {
		c.SignedHeader = o.headerIn("signed_header", "")
		if c.SignedHeader != "" && !hasSignedHeader(headers, c.SignedHeader) {
			o.fail(n, o.at("signed_header"), "nobody's signature of %s is known; write spec.identity.signed_headers: {%s: {callers: {NAME: {keys: [\"ed25519:...\"]}}}}",
				c.SignedHeader, c.SignedHeader)
		}
	}
	o.done()
	return always
}

// exemption reads meter, check and the reason that either needs when it is false.
func (o *object) exemption() (meter, check bool, reason string) {
	meter, check = o.bool("meter", true), o.bool("check", true)
	free := !meter || !check
	n, written := o.find("reason")
	if n != nil {
		if s, ok := o.reader.text(n, o.at("reason")); ok {
			reason = s
			if len([]rune(s)) < 8 && free {
				o.fail(n, o.at("reason"), "%q says too little; write why these requests are free, in 8 characters or more", s)
			}
		}
	}
	if !written && free {
		o.fail(o.n, o.at("reason"), "is missing; write why these requests are not %s", map[bool]string{true: "checked", false: "metered"}[meter])
	}
	return meter, check, reason
}
