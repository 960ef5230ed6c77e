package authz_test

import (
	"testing"

	"github.com/meteproject/mete/authz"
)

// A header of very many lines is looked at and not put together.
func TestRequest_IdentityOfManyLines(t *testing.T) {
	for value, want := range map[string]authz.Found{"k": authz.Value, "other": authz.Other} {
		var req authz.Request
		for range 10_000 {
			req.Headers = append(req.Headers, authz.Field{Name: "x-api-key", Value: "k"}, authz.Field{Name: "other", Value: "v"})
		}
		req.Headers = append(req.Headers, authz.Field{Name: "x-api-key", Value: value})
		if _, found := req.Identity("x-api-key"); found != want {
			t.Errorf("the last line is %s: found %v, want %v", value, found, want)
		}
		if n := testing.AllocsPerRun(5, func() { req.Identity("x-api-key") }); n != 0 {
			t.Errorf("looked at in %v allocations, want none", n)
		}
	}
}
