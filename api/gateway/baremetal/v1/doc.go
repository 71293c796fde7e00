// Package baremetalv1 is the generated HTTP gateway to the services of api/baremetal/v1, as api/gateway.yaml maps them.
// It is a package of its own so that clients and agents do not link it; controller/api/gateway serves it.
package baremetalv1
