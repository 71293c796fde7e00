// Package openapi holds the OpenAPI document of the HTTP gateway, generated from the .proto files and api/gateway.yaml.
package openapi

import _ "embed"

// Document is the OpenAPI 3.1 document, as JSON.
//
//go:embed ingot.json
var Document []byte
