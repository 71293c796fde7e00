package client

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// methodName is a method in a service config (grpc.service_config.MethodConfig.Name).
type methodName struct {
	Service string `json:"service"`
	Method  string `json:"method"`
}

// retryPolicy is grpc.service_config.MethodConfig.RetryPolicy. Durations are as in JSON of protobuf.
type retryPolicy struct {
	MaxAttempts          int      `json:"maxAttempts"`
	InitialBackoff       string   `json:"initialBackoff"`
	MaxBackoff           string   `json:"maxBackoff"`
	BackoffMultiplier    float64  `json:"backoffMultiplier"`
	RetryableStatusCodes []string `json:"retryableStatusCodes"`
}

type methodConfig struct {
	Name        []methodName `json:"name"`
	RetryPolicy retryPolicy  `json:"retryPolicy"`
}

type serviceConfig struct {
	MethodConfig []methodConfig `json:"methodConfig"`
}

// ServiceConfig returns a service config of gRPC as JSON, for clients in any language: a call that may be sent twice
// (Repeatable) is sent again when it ends with UNAVAILABLE, a stream if nothing has come of it. The others are not
// listed.
//
// Connections of Dial do without it. They repeat for longer, wait as RetryInfo asks, and know a handshake that was cut
// off from one that cannot succeed. No call waits for a ready connection (waitForReady), which hides the second kind.
func ServiceConfig() string {
	c := methodConfig{RetryPolicy: retryPolicy{
		// More than five are cut to five by every implementation.
		MaxAttempts: 5, InitialBackoff: "0.25s", MaxBackoff: "5s", BackoffMultiplier: 2,
		RetryableStatusCodes: []string{"UNAVAILABLE"},
	}}
	own := baremetalv1.File_baremetal_v1_machine_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(own, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				full := "/" + string(s.FullName()) + "/" + string(m.Name())
				if !m.IsStreamingClient() && Repeatable(full) {
					c.Name = append(c.Name, methodName{string(s.FullName()), string(m.Name())})
				}
			}
		}
		return true
	})
	slices.SortFunc(c.Name, func(a, b methodName) int {
		return strings.Compare(a.Service+"/"+a.Method, b.Service+"/"+b.Method)
	})
	raw, err := json.Marshal(serviceConfig{MethodConfig: []methodConfig{c}})
	if err != nil {
		panic("a service config without a JSON form: " + err.Error())
	}
	return string(raw)
}
