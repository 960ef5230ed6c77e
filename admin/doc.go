// Package admin serves mete.v1.QuotaService, by which the services behind Envoy tell what
// a request has really used: to gRPC, and to Connect, gRPC-Web and plain JSON over HTTP.
//
//	curl -H 'Content-Type: application/json' localhost:9002/mete.v1.QuotaService/Settle \
//	  -d '{"decision": "01K9VQX0F5T8QK3M5B7ZJ4R2HN", "units": {"tokens": 1234}}'
//
// What the methods promise stands in api/mete/v1/quota_service.proto.
package admin
