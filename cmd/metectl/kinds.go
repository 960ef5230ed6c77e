package main

import (
	"fmt"
	"strings"

	"github.com/meteproject/mete/plan"
)

// kindWords are the spellings of each kind on the command line; the first one
// is its name in output.
func kindWords() map[plan.Kind][]string {
	return map[plan.Kind][]string{
		plan.KindApp:        {"app", "apps"},
		plan.KindPlan:       {"plan", "plans"},
		plan.KindRoutes:     {"routes", "route"},
		plan.KindTenant:     {"tenant", "tenants"},
		plan.KindCredential: {"credential", "credentials", "key", "keys"},
		plan.KindWebhook:    {"webhook", "webhooks"},
		plan.KindRateLimits: {"ratelimits", "ratelimit"},
	}
}

// kindPlural is how many documents of a kind are called.
func kindPlural(kind plan.Kind) string {
	if kind == plan.KindRoutes || kind == plan.KindRateLimits {
		return kindWords()[kind][0]
	}
	return kindWords()[kind][1]
}

// parseKind reads a kind in any of its spellings: Plan, plan or plans.
func parseKind(word string) (plan.Kind, error) {
	lower := strings.ToLower(word)
	for kind, words := range kindWords() {
		for _, w := range words {
			if lower == w {
				return kind, nil
			}
		}
	}
	return "", usageError(fmt.Sprintf("%q is not a kind of document", word),
		"use one of apps, plans, routes, tenants, credentials (or keys), ratelimits")
}

// reference is how a document is named in output: plan/free.
func reference(kind plan.Kind, name string) string {
	if words, ok := kindWords()[kind]; ok {
		return words[0] + "/" + name
	}
	return strings.ToLower(string(kind)) + "/" + name
}

// parseReference reads "plan/free" or the two words "plan" "free".
func parseReference(args []string) (plan.Kind, string, error) {
	word, name := args[0], ""
	if len(args) == 2 {
		name = args[1]
	} else if before, after, ok := strings.Cut(word, "/"); ok {
		word, name = before, after
	}
	kind, err := parseKind(word)
	return kind, name, err
}
