package e2e_test

import "github.com/meteproject/mete/test/rig"

// answered are the outcomes in which the API answers.
func answered() section {
	const delivered = "The answer was delivered."
	return section{"Answers", "The status decides: 2xx, 3xx and 101 cost, but for 304.", []outcome{
		{name: "up-200", happened: "answered with 200", saw: "200", costs: counted, why: delivered, log: "200 - via_upstream", how: script{act: rig.ActStatus + "200"}},
		{name: "up-204", happened: "answered with 204, without content", saw: "204", costs: counted, why: "What was asked for was done.", log: "204 - via_upstream", how: script{act: rig.ActStatus + "204"}},
		{name: "up-301", happened: "redirected with 301", saw: "301", costs: counted, why: "A redirect is an answer.", log: "301 - via_upstream", how: script{act: rig.ActStatus + "301"}},
		{name: "up-304", happened: "told with 304 that nothing has changed", saw: "304", costs: free, why: "Nothing was delivered: the caller has it already.", log: "304 - via_upstream", how: script{act: rig.ActStatus + "304"}},
		{name: "up-404", happened: "refused by the API with 404", saw: "404", costs: free, why: "4xx: the request was not served.", log: "404 - via_upstream", how: script{act: rig.ActStatus + "404"}},
		{name: "up-500", happened: "failed in the API with 500", saw: "500", costs: free, why: "5xx: our failure is not billed.", log: "500 - via_upstream", how: script{act: rig.ActStatus + "500"}},
		{name: "up-503", happened: "failed in the API with 503", saw: "503", costs: free, why: "5xx: our failure is not billed.", log: "503 - via_upstream", how: script{act: rig.ActStatus + "503"}},
		{name: "post-1000", happened: "a POST of 1,000 bytes answered", saw: "200", costs: counted, why: delivered, log: "200 - via_upstream", how: script{act: rig.ActStatus + "200", by: post}},
		{name: "post-chunked-1000-rsp777", happened: "the same in chunks, answered with 777 bytes", saw: "200", costs: counted, why: delivered, log: "200 - via_upstream", how: script{act: rig.ActBytes + "777", by: postChunked}},
		{name: "head", happened: "a HEAD answered", saw: "200", costs: counted, why: "The API has done the work of an answer.", log: "200 - via_upstream", how: script{act: rig.ActStatus + "200", method: "HEAD"}},
		{name: "h2-post-1000", happened: "a POST over HTTP/2 answered", saw: "200", costs: counted, why: delivered, log: "200 - via_upstream", how: script{act: rig.ActStatus + "200", by: postH2}},
		{name: "h1-pipelined-keepalive-2nd-abort", happened: "two requests sent at once, both answered", saw: "200 twice", costs: twice, why: "Two requests, each delivered.", log: "200 - via_upstream", how: script{act: rig.ActStatus + "200", by: pipelined}},
	}}
}

// failed are the outcomes in which the API or the way to it fails.
func failed() section {
	const (
		before = "No answer came from the API; Envoy told the caller so."
		after  = "The answer had begun; it counts by the status that it began with."
	)
	return section{"The API breaks off", "Before the response has begun, Envoy answers 502 or 503, which is free. After that the status has been sent, and decides. An app for which only whole answers cost sets `count.unfinished: false`.", []outcome{
		{name: "up-close-before-headers", happened: "the API closed the connection instead of an answer", saw: "503", costs: free, why: before, log: "503 UC upstream_reset_before_response_started{connection_termination", how: script{act: rig.ActGone}},
		{name: "up-rst-before-headers", happened: "the API reset the connection instead of an answer", saw: "503", costs: free, why: before, log: "503 UC upstream_reset_before_response_started{connection_termination", how: script{act: rig.ActReset}},
		{name: "up-h2-rststream-before-headers", happened: "the API reset the HTTP/2 stream instead of an answer", saw: "503", costs: free, why: before, log: "503 UR upstream_reset_before_response_started{remote_reset", how: script{act: rig.ActGone, by: getH2}},
		{name: "up-garbage", happened: "the API answered what is not HTTP", saw: "502", costs: free, why: before, log: "502 UPE upstream_reset_before_response_started{protocol_error", how: script{act: rig.ActGarbage}},
		{name: "up-refused", happened: "the API could not be reached", saw: "503", costs: free, why: "The API never saw the request.", log: "503 UF upstream_reset_before_response_started{remote_connection_failure", how: script{route: "refused"}},
		{name: "up-close-midbody-cl", happened: "the API closed the connection within its answer", saw: "200, cut off", costs: counted, why: after, log: "200 UPE upstream_reset_after_response_started{protocol_error", how: script{act: rig.ActPartThenGone}},
		{name: "up-rst-midbody-chunked", happened: "the API reset the connection within its answer", saw: "200, cut off", costs: counted, why: after, log: "200 UPE upstream_reset_after_response_started{protocol_error", how: script{act: rig.ActPartThenReset}},
		{name: "up-h2-rststream-midbody", happened: "the API reset the HTTP/2 stream within its answer", saw: "200, cut off", costs: counted, why: after, log: "200 UR upstream_reset_after_response_started{remote_reset", how: script{act: rig.ActPartThenGone, by: getH2}},
	}}
}

// timedOut are the outcomes in which Envoy's patience ends.
func timedOut() section {
	const after = "The answer had begun; it counts by the status that it began with."
	return section{"Timeouts of Envoy", "As where the API breaks off: free before the response has begun, by its status after that.", []outcome{
		{name: "up-timeout-504", happened: "no answer within the route's timeout", saw: "504", costs: free, why: "No answer was delivered.", log: "504 UT response_timeout", how: script{act: rig.ActSilent, route: "timeout"}},
		{name: "up-timeout-midbody", happened: "the route's timeout ended the answer", saw: "200, cut off", costs: counted, why: after, log: "200 UT response_timeout", how: script{act: rig.ActPartThenSilent, route: "timeout"}},
		{name: "idle-before-headers", happened: "nothing moved for the idle timeout, before an answer", saw: "504", costs: free, why: "No answer was delivered.", log: "504 SI stream_idle_timeout", how: script{act: rig.ActSilent, route: "idle"}},
		{name: "idle-midbody", happened: "nothing moved for the idle timeout, within the answer", saw: "200, cut off", costs: counted, why: after, log: "200 SI stream_idle_timeout", how: script{act: rig.ActPartThenSilent, route: "idle"}},
		{name: "idle-request-incomplete", happened: "the caller did not finish its request", saw: "408", costs: free, why: "4xx: the request was not served.", log: "408 SI stream_idle_timeout", how: script{act: rig.ActSilent, route: "idle", by: unfinished}},
		{name: "maxdur-midbody", happened: "the longest time that a request may take ended the answer", saw: "200, cut off", costs: counted, why: after, log: "200 - max_duration_timeout", how: script{act: rig.ActTrickle, route: "longest"}},
	}}
}

// left are the outcomes in which the caller does not wait for the end.
func left() section {
	const (
		before = "It got nothing. An app that has done the work all the same, and wants it paid, sets `count.aborted: true`."
		after  = "The answer had begun, and the API had done the work: counted by its status, however much the caller read."
		during = "It was gone before Envoy had asked to the end: what mete took, if anything, it gave back when it saw that."
	)
	return section{"The caller leaves", "Before the response has begun that is free; after that its status decides.", []outcome{
		{name: "cl-abort-h1-before-headers", happened: "left while the API worked", saw: "left", costs: free, why: before, log: "0 DC downstream_remote_disconnect", how: script{act: rig.ActSilent, by: leave}},
		{name: "cl-abort-h1-100-continue", happened: "the same, when Envoy had sent 100 Continue", saw: "left", costs: free, why: "100 is not an answer yet.", log: "100 DC downstream_remote_disconnect", how: script{act: rig.ActSilent, by: leaveContinue}},
		{name: "cl-abort-h1-rst-before-headers", happened: "the same, by a reset of the connection", saw: "left", costs: free, why: before, log: "0 DC downstream_remote_disconnect", how: script{act: rig.ActSilent, by: leaveByReset}},
		{name: "cl-abort-h1-upload", happened: "left in the middle of its own upload", saw: "left", costs: free, why: before, log: "0 DC downstream_remote_disconnect", how: script{act: rig.ActSilent, by: leaveUpload}},
		{name: "cl-abort-h2-before-headers", happened: "left an HTTP/2 request while the API worked", saw: "left", costs: free, why: before, log: "0 DR http2.remote_reset", how: script{act: rig.ActSilent, by: leaveH2}},
		{name: "cl-abort-h1-midbody", happened: "left within the answer", saw: "200, left", costs: counted, why: after, log: "200 DC downstream_remote_disconnect", how: script{act: rig.ActTrickle, by: leaveWithin}},
		{name: "cl-abort-h1-large-midbody", happened: "left a download of many megabytes after the first one", saw: "200, left", costs: counted, why: after, log: "200 DC downstream_remote_disconnect", how: script{act: rig.ActFlood, by: leaveFlood}},
		{name: "cl-abort-h2-midbody", happened: "left an HTTP/2 request within the answer", saw: "200, left", costs: counted, why: after, log: "200 DR http2.remote_reset", how: script{act: rig.ActTrickle, by: leaveWithinH2}},
		{name: "cl-abort-h1-during-check", happened: "left while Envoy was asking mete", saw: "left", costs: free, why: during, blind: true, log: "0 DC downstream_remote_disconnect", how: script{listener: "proxied", check: rig.CheckLost, by: leaveCheck}},
		{name: "cl-abort-h2-during-check", happened: "the same over HTTP/2", saw: "left", costs: free, why: during, blind: true, log: "0 DR http2.remote_reset", how: script{listener: "proxied", check: rig.CheckLost, by: leaveCheckH2}},
		{name: "cl-abort-answer-on-its-way", happened: "left when mete had answered and Envoy had not yet heard it", saw: "left", costs: untold, why: unsettled, blind: true, log: "0 DC downstream_remote_disconnect", how: script{listener: "proxied", check: rig.CheckLate, by: leaveCheck}},
	}}
}

// unsettled is why a request costs what it reserved whose end mete is not told.
const unsettled = "Envoy's log does not say which decision it belongs to, so it stays at what was reserved. Rare, and counted in a metric."

// retried are the outcomes in which Envoy tries more than once.
func retried() section {
	return section{"Retries of Envoy", "However often Envoy asks the API, the caller has sent one request and gets one answer.", []outcome{
		{name: "retry-503-200", happened: "503 at the first try, 200 at the second", saw: "200", costs: counted, why: "One answer was delivered: one request, not two.", log: "200 - via_upstream", how: script{act: rig.ActBusyOnce, route: "retry"}},
		{name: "retry-all-503", happened: "503 at every try", saw: "503", costs: free, why: "5xx: our failure is not billed.", log: "503 URX via_upstream", how: script{act: rig.ActStatus + "503", route: "retry"}},
		{name: "retry-grpc-unavailable-ok", happened: "a gRPC call, UNAVAILABLE at the first try and OK at the second", saw: "gRPC OK", costs: counted, why: "One answer was delivered: one call, not two.", log: "200 - via_upstream", how: script{act: rig.ActCallFailsOnce, route: "retry", by: unary}},
		{name: "internal-redirect", happened: "302 from the API, which Envoy followed itself (`internal_redirect_policy`), then 200", saw: "200", costs: counted, followed: true, why: "One answer was delivered. Envoy asks mete twice, so that both must have room for a moment: where the second does not, the caller gets its refusal, and both are free.", log: "200 - via_upstream", how: script{act: rig.ActMovedOnce, route: "followed"}},
		{name: "retry-check-unavailable", happened: "Envoy reached mete at its third try only", saw: "200", costs: counted, why: "The tries before did not reach mete. Where they do, each is given back when Envoy gives it up.", log: "200 - via_upstream", how: script{act: rig.ActStatus + "200", listener: "proxied", check: rig.CheckUnavailableTwice}},
	}}
}

// calls are the ways for gRPC calls to end.
func calls() section {
	return section{"gRPC", "The HTTP status is 200 whatever happens, so the gRPC status decides: OK costs. Where a call broke off there is none, and it counts as any answer that began.", []outcome{
		{name: "grpc-unary-ok", happened: "answered with OK", saw: "gRPC OK", costs: counted, why: "The answer was delivered; its number comes in a trailer.", log: "200 - via_upstream", how: script{act: rig.ActCallOK, by: unary}},
		{name: "grpc-error-trailers", happened: "failed with NOT_FOUND, told after the headers", saw: "gRPC NOT_FOUND", costs: free, why: "A call that failed was not served.", log: "200 - via_upstream", how: script{act: rig.ActCallFails, by: unary}},
		{name: "grpc-trailers-only", happened: "failed with NOT_FOUND, told at once", saw: "gRPC NOT_FOUND", costs: free, why: "A call that failed was not served.", log: "200 - via_upstream", how: script{act: rig.ActCallRefused, by: unary}},
		{name: "grpc-unary-client-deadline", happened: "the caller's deadline passed before an answer", saw: "gRPC DEADLINE_EXCEEDED", costs: free, why: "The caller left before an answer began.", log: "0 DR http2.remote_reset", how: script{act: rig.ActSilent, by: deadline}},
		{name: "grpc-stream-complete", happened: "a stream of three messages and OK", saw: "gRPC OK", costs: counted, why: "One call, however many messages it has.", log: "200 - via_upstream", how: script{act: rig.ActCallStream, by: stream}},
		{name: "grpc-stream-client-cancel", happened: "the caller cancelled a stream after two messages", saw: "2 messages, left", costs: untold, why: "Messages were delivered, so it counts; the number of units would have come at the end, so what was reserved stands.", log: "200 DR http2.remote_reset", how: script{act: rig.ActCallPart, by: cancelStream}},
		{name: "grpc-stream-conn-drop", happened: "the caller's connection broke after two messages", saw: "2 messages, left", costs: untold, why: "Messages were delivered, so it counts; the number of units would have come at the end, so what was reserved stands.", log: "200 ", how: script{act: rig.ActCallPart, by: dropStream}},
	}}
}

// long are the requests that last, with log entries while they do.
func long() section {
	return section{"Long requests", "Only the last entry of the log settles, whatever Envoy tells before.", []outcome{
		{name: "websocket", happened: "a websocket, closed by the caller", saw: "101", costs: counted, why: "One request, however long it lasts. 101 costs.", log: "101 DC downstream_remote_disconnect", how: script{act: rig.ActUpgrade, by: websocket}},
		{name: "websocket-periodic", happened: "the same, with log entries meanwhile", saw: "101", costs: counted, why: "Entries before the last one settle nothing.", log: "101 DC downstream_remote_disconnect", how: script{act: rig.ActUpgrade, listener: "periodic", by: websocket}},
		{name: "slow-stream-periodic", happened: "a slow answer, with log entries meanwhile", saw: "200", costs: counted, why: "Entries before the last one settle nothing.", log: "200 - via_upstream", how: script{act: rig.ActSlow, listener: "periodic"}},
		{name: "grpc-stream-periodic", happened: "a slow gRPC stream, with log entries meanwhile", saw: "gRPC OK", costs: counted, why: "The number of units comes at the end, and with the last entry.", log: "200 - via_upstream", how: script{act: rig.ActCallSlow, listener: "periodic", by: stream}},
		{name: "short-on-periodic", happened: "a quick answer, with a log entry at its start", saw: "200", costs: counted, why: "Entries before the last one settle nothing.", log: "200 - via_upstream", how: script{act: rig.ActStatus + "200", listener: "periodic"}},
	}}
}
