package e2e_test

import "github.com/meteproject/mete/test/rig"

// denied are the requests that mete refuses. The routes that refuse nobody serve
// them: see column.serves.
func denied() section {
	const (
		nothing = "Refused before any work was done."
		used    = "429"
	)
	return section{"Refusals", "Nothing was done, and nothing is taken. Exempt and meter-only routes refuse nobody for a quota: there the request is served, and costs what it always does.", []outcome{
		{name: "denied-429", happened: "refused by mete: the quota is used up", saw: used, costs: refused, full: true, why: nothing, log: "429 UAEX ext_authz_denied", how: script{act: rig.ActStatus + "200"}},
		{name: "denied-429-post", happened: "a POST of 1,000 bytes refused", saw: used, costs: refused, full: true, why: nothing, log: "429 UAEX ext_authz_denied", how: script{act: rig.ActStatus + "200", by: post}},
		{name: "denied-default", happened: "refused by mete: the key is not known", saw: "401", costs: free, why: "Nobody is known who could pay. Exempt routes let on even those: who signs in has no key yet.", log: "401 UAEX ext_authz_denied", how: script{act: rig.ActStatus + "200", stranger: true}},
		{name: "denied-grpc", happened: "a gRPC call refused", saw: "gRPC RESOURCE_EXHAUSTED", costs: refused, full: true, why: nothing, log: "200 UAEX ext_authz_denied", how: script{act: rig.ActCallOK, by: unary}},
		{name: "denied-on-periodic", happened: "refused, with a log entry at its start", saw: used, costs: refused, full: true, why: nothing, log: "429 UAEX ext_authz_denied", how: script{act: rig.ActStatus + "200", listener: "periodic"}},
		{name: "websocket-denied", happened: "a websocket refused", saw: used, costs: refused, full: true, why: nothing, log: "429 UAEX ext_authz_denied", how: script{act: rig.ActUpgrade, by: websocket}},
		{name: "direct_response-denied", happened: "refused where Envoy itself would have answered", saw: used, costs: refused, full: true, why: nothing, log: "429 UAEX ext_authz_denied", how: script{route: "direct"}},
		{name: "ratelimited-429", happened: "admitted by mete, then refused by Envoy's rate limit filter", saw: used, costs: free, why: "4xx: what mete had taken is given back.", log: "429 RL request_rate_limited", how: script{listener: "edge", edge: "edge:full", act: rig.ActStatus + "200"}},
		{name: "rl-ok", happened: "admitted by mete and by Envoy's rate limit filter", saw: "200", costs: counted, why: "The answer was delivered.", log: "200 - via_upstream", how: script{listener: "edge", edge: "edge:open", act: rig.ActStatus + "200"}},
		{name: "rl-500", happened: "admitted by both, and failed in the API with 500", saw: "500", costs: free, why: "5xx: our failure is not billed, and what was taken for the rate limit filter goes back, too.", log: "500 - via_upstream", how: script{listener: "edge", edge: "edge:open-failed", act: rig.ActStatus + "500"}},
		{name: "shadow-ok", happened: "Envoy asks and heeds no refusal (shadow mode); admitted", saw: "200", costs: counted, why: "The answer was delivered, and mete had admitted it.", log: "200 - via_upstream", how: script{listener: "shadow", act: rig.ActStatus + "200"}},
		{name: "shadow-denied", happened: "refused by mete, and served all the same (shadow mode)", saw: "200", costs: refused, full: true, why: "A refusal takes nothing, and what Envoy makes of it mete does not decide: shadow mode is for trying out.", log: "200 - via_upstream", how: script{listener: "shadow", act: rig.ActStatus + "200"}},
	}}
}

// unasked are the requests that mete does not decide: it is down, or too slow, or
// Envoy does not let its answer through.
func unasked() section {
	const (
		closed  = "mete did not decide, and Envoy refused: nothing is counted."
		open    = "mete did not decide, and Envoy served it all the same: nobody counts it. Envoy's own figures (failure_mode_allowed) say how many."
		shadow  = "mete did not decide: nothing is counted."
		trouble = "An answer that decides nothing takes nothing. mete sends none such."
	)
	return section{"mete is not there", "What Envoy does without mete is Envoy's setting, `failure_mode_allow`. What mete has not admitted costs nothing.", []outcome{
		{name: "check-error-closed", happened: "mete could not be reached, Envoy refuses", saw: "503", costs: free, why: closed, blind: true, log: "503 UAEX ext_authz_error", how: script{listener: "closed", check: rig.CheckUnavailable}},
		{name: "check-error-open", happened: "mete could not be reached, Envoy serves", saw: "200", costs: free, why: open, blind: true, log: "200 - via_upstream", how: script{listener: "open", check: rig.CheckUnavailable, act: rig.ActStatus + "200"}},
		{name: "check-timeout-closed", happened: "the question did not reach mete in time, Envoy refuses", saw: "503", costs: free, why: closed, blind: true, log: "503 UAEX ext_authz_error", how: script{listener: "closed", check: rig.CheckLost}},
		{name: "check-timeout-open", happened: "the question did not reach mete in time, Envoy serves", saw: "200", costs: free, why: open, blind: true, log: "200 - via_upstream", how: script{listener: "open", check: rig.CheckLost, act: rig.ActStatus + "200"}},
		{name: "check-late-closed", happened: "mete's answer did not come in time, Envoy refuses", saw: "503", costs: untold, why: unsettled, blind: true, log: "503 UAEX ext_authz_error", how: script{listener: "closed", check: rig.CheckLate}},
		{name: "check-late-open", happened: "mete's answer did not come in time, Envoy serves", saw: "200", costs: untold, why: unsettled, blind: true, log: "200 - via_upstream", how: script{listener: "open", check: rig.CheckLate, act: rig.ActStatus + "200"}},
		{name: "check-internal-closed", happened: "mete failed, Envoy refuses", saw: "503", costs: free, why: closed, blind: true, log: "503 UAEX ext_authz_error", how: script{listener: "closed", check: rig.CheckInternal}},
		{name: "error_response-closed", happened: "an answer that decides nothing, Envoy refuses", saw: "502", costs: free, why: trouble, blind: true, log: "502 UAEX ext_authz_error", how: script{listener: "closed", check: rig.CheckTrouble}},
		{name: "error_response-open", happened: "an answer that decides nothing, Envoy serves", saw: "200", costs: free, why: trouble, blind: true, log: "200 - via_upstream", how: script{listener: "open", check: rig.CheckTrouble, act: rig.ActStatus + "200"}},
		{name: "shadow-error", happened: "mete could not be reached, in shadow mode", saw: "200", costs: free, why: shadow, blind: true, log: "200 - via_upstream", how: script{listener: "shadow", check: rig.CheckUnavailable, act: rig.ActStatus + "200"}},
		{name: "noing-ok", happened: "Envoy is set not to keep what mete tells it (`enable_dynamic_metadata_ingestion: false`)", saw: "200", costs: untold, why: unsettled + " Here it is every request: leave that setting alone.", blind: true, log: "200 - via_upstream", how: script{listener: "noing", act: rig.ActStatus + "200"}},
	}}
}

// local are the requests that Envoy itself answers.
func local() section {
	const unasked = "Envoy did not ask mete: nothing is counted."
	return section{"Envoy answers itself", "Where mete was asked the status decides, no matter what made the answer. To give such a route away, let Envoy not ask (`disabled: true`).", []outcome{
		{name: "direct_response", happened: "a fixed answer of Envoy's configuration", saw: "200", costs: untold, why: "A 200 is an answer. It tells no number of units, so what was reserved stands.", log: "200 - direct_response", how: script{route: "direct"}},
		{name: "redirect-route", happened: "a redirect of Envoy's configuration", saw: "301", costs: untold, why: "A redirect is an answer. It tells no number of units, so what was reserved stands.", log: "301 - direct_response", how: script{route: "redirect"}},
		{name: "noroute", happened: "no route of Envoy's fits", saw: "404", costs: free, why: unasked, blind: true, log: "404 NR route_not_found", how: script{host: "nowhere"}},
		{name: "healthz-disabled", happened: "a route for which Envoy does not ask", saw: "200", costs: free, why: unasked, blind: true, log: "200 - via_upstream", how: script{path: "/healthz", act: rig.ActStatus + "200"}},
		{name: "malformed-request", happened: "what is no request", saw: "400", costs: free, why: unasked, blind: true, log: "400 - missing_host_header", how: script{by: malformed}},
	}}
}
