package controller

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestEachServiceHasItsHealth, and none is healthy on a controller that drains.
func TestEachServiceHasItsHealth(t *testing.T) {
	t.Parallel()
	c := &Controller{}
	c.draining, c.drain = context.WithCancel(t.Context())
	s := grpc.NewServer()
	baremetalv1.RegisterMachineServiceServer(s, baremetalv1.UnimplementedMachineServiceServer{})
	h := c.healthOf(s)
	status := func(service string) healthv1.HealthCheckResponse_ServingStatus {
		r, err := h.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
		}
		return r.GetStatus()
	}
	for service, want := range map[string]healthv1.HealthCheckResponse_ServingStatus{
		"":                            healthv1.HealthCheckResponse_SERVING,
		"baremetal.v1.MachineService": healthv1.HealthCheckResponse_SERVING,
		"baremetal.v1.CowService":     healthv1.HealthCheckResponse_SERVICE_UNKNOWN,
	} {
		if got := status(service); got != want {
			t.Errorf("the health of %q is %v, not %v", service, got, want)
		}
	}
	c.drain()
	testkit.Eventually(t, testkit.Patience, func() bool {
		return status("baremetal.v1.MachineService") == healthv1.HealthCheckResponse_NOT_SERVING &&
			status("") == healthv1.HealthCheckResponse_NOT_SERVING
	}, "a draining controller is healthy")
}
