package plan

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

func (o *object) routes() *Routes {
	rs := &Routes{}
	if n := o.require("app", "the app that the rules belong to"); n != nil {
		rs.App, _ = o.readName(n, o.at("app"))
	}
	names := map[string]bool{}
	if n := o.require("rules", "a list of rules"); n != nil {
		o.elements(n, o.at("rules"), func(item *node, path string) {
			f := o.object(item, path)
			rule := f.rule()
			if rule.Name != "" && names[rule.Name] {
				o.fail(item, join(path, "name"), "another rule is called %s; choose another name", rule.Name)
			}
			names[rule.Name] = true
			rs.Rules = append(rs.Rules, rule)
		})
	}
	return rs
}

func (o *object) rule() Rule {
	rule := Rule{Name: o.name("name"), Weight: 1}
	if n := o.require("match", "which requests, such as {path: /v1/things}"); n != nil {
		o.object(n, o.at("match")).match(&rule)
	}
	weight := o.field("weight")
	if weight != nil {
		if v, ok := o.amount(weight, o.at("weight")); ok {
			rule.Weight = v
		}
	}
	rule.Meter, rule.Check, rule.Reason = o.exemption()
	if !rule.Meter && weight != nil && rule.Weight > 0 {
		o.fail(weight, o.at("weight"), "costs nothing with meter: false; leave one of them out")
	}
	if n := o.field("units"); n != nil {
		rule.Units = o.reserves(n, o.at("units"), rule.Weight)
		if !rule.Meter {
			o.fail(n, o.at("units"), "cost nothing with meter: false; leave one of them out")
		}
	}
	if _, written := o.find("name"); !written && slices.ContainsFunc(rule.Units, func(u Reserve) bool { return u.Use != nil }) {
		o.missing = append(o.missing, missing{"name", "a name by which the end of a request finds the rule, since it has use"})
	}
	o.done()
	return rule
}

func (o *object) match(rule *Rule) {
	rule.Methods = o.texts("methods")
	for i, m := range rule.Methods {
		if strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			o.fail(o.n, fmt.Sprintf("%s[%d]", o.at("methods"), i), "%q is not a method; write one such as %s, in capitals", short(m), http.MethodPost)
		}
	}
	if n := o.field("hosts"); n != nil {
		o.some(n, o.at("hosts"), o.host(&rule.Hosts))
	}
	var ways []string
	if n := o.field("path"); n != nil {
		ways = append(ways, "path")
		rule.Path = o.routePath(n, o.at("path"), true)
	}
	if n := o.field("path_prefix"); n != nil {
		ways = append(ways, "path_prefix")
		rule.PathPrefix = o.routePath(n, o.at("path_prefix"), false)
	}
	if n := o.field("grpc_method"); n != nil {
		ways = append(ways, "grpc_method")
		s, ok := o.reader.text(n, o.at("grpc_method"))
		if ok && !isGRPCMethod(s) {
			o.fail(n, o.at("grpc_method"), "%q is not a method; write package.Service/Method", short(s))
		} else {
			rule.GRPCMethod = s
		}
	}
	if len(ways) > 1 {
		o.fail(o.n, o.path, "%s at once; a rule matches in one way, keep one", listed(ways, "and"))
	}
	if !o.noMap && len(o.n.keys) == 0 {
		o.fail(o.n, o.path, "matches nothing; write path, path_prefix, grpc_method, methods or hosts")
	}
	o.done()
}

// isGRPCMethod reports whether s is spelled "package.Service/Method".
func isGRPCMethod(s string) bool {
	service, method, ok := strings.Cut(s, "/")
	if !ok || !isIdentifier(method) {
		return false
	}
	for word := range strings.SplitSeq(service, ".") {
		if !isIdentifier(word) {
			return false
		}
	}
	return true
}

func isIdentifier(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return s != "" && strings.ContainsRune(letters, rune(s[0])) && strings.Trim(s, letters+"0123456789") == ""
}

// routePath reads a path as it must be after normalisation, or no request could
// match it.
func (o *object) routePath(n *node, path string, names bool) string {
	s, ok := o.reader.text(n, path)
	if !ok {
		return ""
	}
	if !strings.HasPrefix(s, "/") {
		o.fail(n, path, "%q is not a path; write /%s", short(s), short(s))
		return ""
	}
	normal, ok := normalize(s)
	switch {
	case !ok:
		o.fail(n, path, "%q can not be normalised, so no request would match; write a path without #, \\, spaces and broken escapes", short(s))
		return ""
	case normal != s:
		o.fail(n, path, "%q is not how requests are compared; write %s", short(s), short(normal))
		return ""
	}
	for segment := range strings.SplitSeq(s[1:], "/") {
		isName := len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}' && !strings.ContainsAny(segment[1:len(segment)-1], "{}")
		if strings.ContainsAny(segment, "{}*") && (!isName || !names) {
			where := "in path alone, "
			if names {
				where = ""
			}
			o.fail(n, path, "%q: a pattern is a whole segment {name}, %sand * is not one; write /things/{id}", short(s), where)
			return ""
		}
	}
	return s
}
