package plan_test

import (
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// C160: a file of a gateway that spells out every field is read as envoyproxy/ratelimit
// reads it, and needs level 5, for versions before refuse it.
func TestDecode_C160_WhatGatewaysWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		level int
		path  string
		says  string // "": taken
	}{
		{"name: edge-http\ndomain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 3}}]", 5, "name", ""},
		{"domain: d\ndescriptors: [{key: a, rate_limit: null}]", 5, "descriptors[0].rate_limit", ""},
		{"domain: d\ndescriptors: [{key: a, descriptors: [{key: b}, {key: c, rate_limit: }]}]", 5, "descriptors[0].descriptors[1].rate_limit", ""},
		{"domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: null, unit_multiplier: null}}]", 5, "descriptors[0].rate_limit.unit_multiplier", ""},
		{"domain: d\ndescriptors: [{key: a, shadow_mode: null}]", 4, "domain", ""},
		{"domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: null}}]", 0, "", "requests_per_unit: has no value"},
		{"domain: d\ndescriptors: [{key: a, rate_limit: {unit: null, requests_per_unit: 3}}]", 0, "", "unit: has no value"},
	} {
		docs, problems := plan.Decode("f", []byte(tt.text))
		switch {
		case tt.says != "":
			if !strings.Contains(lines(problems), tt.says) || strings.Count(lines(problems), "\n") != 1 {
				t.Errorf("%s: got\n%s", tt.text, lines(problems))
			}
		case len(docs) != 1:
			t.Errorf("%s: got\n%s", tt.text, lines(problems))
		default:
			if level, path := docs[0].Needs(); level != tt.level || path != tt.path {
				t.Errorf("%s: needs %d for %s", tt.text, level, path)
			}
		}
	}
}

// C170: a rule whose value cannot be read is not taken for its neighbour; one that is
// written twice still is, whatever else is wrong with it.
func TestDecode_C170_OneMistakeOneMessage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"[{key: tier, value: null}, {key: tier, value: 1e3}]":                                    1,
		"[{key: tier}, {key: tier, regex: '('}]":                                                 1,
		"[{key: tier}, {key: tier, value: [a]}, {key: tier, value: {b: c}}]":                     2,
		"[{key: tier}, {key: tier, rate_limit: {unit: never, requests_per_unit: 1}}]":            2,
		"[{key: tier}, {key: tier, descriptors: [{key: x, value: null}, {key: x, value: 1e3}]}]": 2,
	} {
		if _, problems := plan.Decode("f", []byte("domain: d\ndescriptors: "+text)); len(problems) != want {
			t.Errorf("%s: got\n%swant %d", text, lines(problems), want)
		}
	}
}
