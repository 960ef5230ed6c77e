package plan

// paths reads how the servers of an app read paths.
func (o *object) paths() Paths {
	said := func(name, no, yes string) Said {
		return choose(o, name, Unsaid, option[Said]{no, No}, option[Said]{yes, Yes})
	}
	p := Paths{
		SlashesUnescaped: said("escaped_slash", "letter", "separator"),
		ParametersCut:    said("parameters", "keep", "cut"),
		TrailingSlashCut: said("trailing_slash", "keep", "cut"),
	}
	if o.field("ignore_case") != nil {
		p.CaseIgnored = No
		if o.bool("ignore_case", false) {
			p.CaseIgnored = Yes
		}
	}
	o.done()
	return p
}
