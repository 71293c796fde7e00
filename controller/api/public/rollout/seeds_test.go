package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestASeedIsCarriedToTheReimage: it is in no answer and in the digest by its name, and one operation of three has it.
func TestASeedIsCarriedToTheReimage(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(publictest.NewMachine(1))
	spec := func(secret string) *pb.RolloutSpec {
		return &pb.RolloutSpec{Filter: "state=NEW", Action: pb.RolloutSpec_PROVISION,
			Params: map[string]string{"image_ref": "ubuntu-2204"},
			Seed:   &pb.SystemSeed{UserData: "#cloud-config\npassword: " + secret + "\n"}}
	}
	ro := create(r, "it", spec("hunter2"))
	if text := fmt.Sprint(ro, preview(r, spec("hunter2"))); strings.Contains(text, "hunter2") ||
		!strings.HasPrefix(ro.GetSpec().GetSeedId(), "seed-") {
		t.Errorf("%s", text)
	}
	if preview(r, spec("hunter3")).GetDigest() == preview(r, spec("hunter2")).GetDigest() {
		t.Error("another seed has the same digest")
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM system_seeds"); n != 1 {
		t.Errorf("%d seeds are stored; a preview stores none", n)
	}
	for i := range 8 {
		if err := turn(r, ro.GetRolloutId(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	ops, err := r.Operations.ListOperations(t.Context(), &pb.ListOperationsRequest{})
	if err != nil || len(ops.GetOperations()) < 2 {
		t.Fatalf("%v, %v", ops, err)
	}
	for _, op := range ops.GetOperations() {
		want := ""
		if op.GetType() == pb.Operation_REIMAGE {
			want = ro.GetSpec().GetSeedId()
		}
		if op.GetParams()["seed"] != want {
			t.Errorf("%s has seed %q", op.GetType(), op.GetParams()["seed"])
		}
	}
	bad := spec("x")
	bad.SeedId = "seed-1"
	_, err = r.Rollouts.PreviewRollout(t.Context(), &pb.PreviewRolloutRequest{Spec: bad})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "spec.seed_id")
	entering := entering(func(s *pb.RolloutSpec) { s.Seed = spec("x").GetSeed() })
	if p := preview(r, entering); len(p.GetWaves()) > 0 {
		t.Errorf("a seed for work that writes no image is taken: %v", p)
	}
}

// TestASeedStaysForItsRollout, whose last machines may come long after the first.
func TestASeedStaysForItsRollout(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(publictest.NewMachine(1))
	ro := create(r, "it", &pb.RolloutSpec{
		Filter: "state=NEW", Action: pb.RolloutSpec_PROVISION, Params: map[string]string{"image_ref": "ubuntu-2204"},
		Seed: &pb.SystemSeed{UserData: "#cloud-config\n"},
	})
	left := func() (n int) {
		if err := r.Store.Credentials.Tidy(t.Context(), time.Now().AddDate(1, 0, 0)); err != nil {
			t.Fatal(err)
		}
		err := r.Store.DB.Pool().QueryRow(t.Context(), "SELECT count(*) FROM system_seeds WHERE seed_id = $1",
			ro.GetSpec().GetSeedId()).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if left() != 1 {
		t.Error("the seed of a rollout under way is gone")
	}
	if _, err := r.Rollouts.CancelRollout(
		t.Context(),
		&pb.CancelRolloutRequest{RolloutId: ro.GetRolloutId()},
	); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := turn(r, ro.GetRolloutId(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	if left() != 0 {
		t.Error("the seed of a rollout that has ended stays")
	}
}
