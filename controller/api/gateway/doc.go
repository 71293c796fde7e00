// Package gateway serves the frontpage's calls as JSON over HTTP.
//
// # Overview
//
// A request passes the Gateway's own checks: route, method, query, media type, size. Then the generated handlers of
// api/gateway call the frontpage over a connection inside the process (Pipe). Behind it stand the same interceptors and
// handlers as behind the gRPC listener, so tokens, scopes, limits, audit and errors are those of gRPC: nothing is
// decided here.
//
// # Sources of truth
//
// api/gateway.yaml maps calls to methods and paths. Routes are read out of the OpenAPI document that is generated from
// it, so the service and its documentation cannot differ.
//
// # State
//
// None. A Gateway may be used by any number of requests at once.
//
// # Failure handling
//
// Every refusal is a google.rpc.Status in JSON with an ErrorInfo, whether the frontpage has made it or the Gateway. A
// stream that has begun cannot change its HTTP status: it ends with a line {"error": …}.
package gateway
