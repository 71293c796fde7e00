package admin_test

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// TestATokenIsNotNamedLikeAnotherActor: its acts would stand in the audit log as those of the controllers or an agent.
func TestATokenIsNotNamedLikeAnotherActor(t *testing.T) {
	r := publictest.NewRig(t)
	for _, name := range []string{"system", ids.New(ids.Agent)} {
		_, err := r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: name, Scope: "read"})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "name")
	}
	_, err := r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: "a-team", Scope: "read"})
	if err != nil {
		t.Error(err)
	}
}
