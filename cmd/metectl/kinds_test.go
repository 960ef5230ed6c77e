package main

import (
	"testing"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func TestParseReference(t *testing.T) {
	for _, tt := range []struct {
		args []string
		kind plan.Kind
		name string
	}{
		{[]string{"plans"}, plan.KindPlan, ""},
		{[]string{"Plan", "free"}, plan.KindPlan, "free"},
		{[]string{"plan/free"}, plan.KindPlan, "free"},
		{[]string{"routes", "api"}, plan.KindRoutes, "api"},
		{[]string{"tenant", "org:a/b"}, plan.KindTenant, "org:a/b"},
		{[]string{"TENANTS"}, plan.KindTenant, ""},
	} {
		kind, name, err := parseReference(tt.args)
		if err != nil || kind != tt.kind || name != tt.name {
			t.Errorf("parseReference(%q) = %s, %q, %v; want %s, %q", tt.args, kind, name, err, tt.kind, tt.name)
		}
	}
	if _, _, err := parseReference([]string{"planz"}); err == nil {
		t.Error(`parseReference("planz") gave no error`)
	}
}

func TestReferenceNamesEveryKind(t *testing.T) {
	for _, kind := range store.Kinds() {
		ref := reference(kind, "x")
		got, name, err := parseReference([]string{ref})
		if err != nil || got != kind || name != "x" {
			t.Errorf("%s is read back as %s %q, %v", ref, got, name, err)
		}
	}
}
