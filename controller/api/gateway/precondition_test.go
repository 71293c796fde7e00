package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestTheVersionOfAThingIsItsEntityTag(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if err := entityTag(t.Context(), w, &pb.Machine{Version: 7}); err != nil || w.Header().Get("ETag") != `"7"` {
		t.Errorf("a machine of version 7 has the tag %q, %v", w.Header().Get("ETag"), err)
	}
	w = httptest.NewRecorder()
	if err := entityTag(t.Context(), w, &pb.ListMachinesResponse{}); err != nil || w.Header().Get("ETag") != "" {
		t.Errorf("a list has the tag %q, %v", w.Header().Get("ETag"), err)
	}
	if code := httpStatus(failure.ToStatus(failure.Precondition("VERSION_CONFLICT",
		"changed"))); code != http.StatusPreconditionFailed {
		t.Errorf("a lost update is %d", code)
	}
	if code := httpStatus(failure.ToStatus(failure.Precondition("MACHINE_BUSY", "busy"))); code != http.StatusBadRequest {
		t.Errorf("a busy machine is %d", code)
	}
}

func TestIfMatchIsTheVersionThatAWriteExpects(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int64{"": 0, "*": 0, `"7"`: 7, "7": 7, `"x"`: -1, `"0"`: -1, `W/"7"`: -1} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/api/v1/machines/m-1", nil)
		r.Header.Set("If-Match", header)
		r, bad := withIfMatch(r)
		if (bad != nil) != (want < 0) {
			t.Errorf("If-Match: %s gives %v", header, bad)
		}
		if want < 0 {
			continue
		}
		in := &pb.UpdateMachineRequest{}
		if err := expect(r.Context(), in); err != nil || in.GetExpectedVersion() != want {
			t.Errorf("If-Match: %s expects version %d, %v", header, in.GetExpectedVersion(), err)
		}
	}
	seven := context.WithValue(t.Context(), ifMatchKey{}, int64(7))
	if err := expect(seven, &pb.UpdateMachineRequest{ExpectedVersion: 8}); status.Code(err).String() != "InvalidArgument" {
		t.Errorf("two versions are %v", err)
	}
	if err := expect(seven, &pb.RebootMachineRequest{}); status.Code(err).String() != "InvalidArgument" {
		t.Errorf("a call that writes nothing versioned is %v", err)
	}
}
