// Package gateway serves the frontpage's calls as JSON over HTTP.
//
// # Overview
//
// A request goes through the Gateway's own checks (route, method, query, media type, size), then through the generated
// handlers of api/gateway, which call the frontpage over a connection inside the process (Pipe). Behind it stand the
// same interceptors and handlers as behind the gRPC listener, so tokens, scopes, limits, audit and errors are those of
// gRPC: nothing is decided here.
//
// # Sources of truth
//
// api/gateway.yaml maps calls to methods and paths. Routes are read out of the OpenAPI document that is generated from
// it, so what is served and what is documented cannot differ.
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
