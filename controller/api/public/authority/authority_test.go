package authority_test

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestTheCAIsRotatedOnce(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	first, err := r.Authority.GetAuthority(ctx, &pb.GetAuthorityRequest{})
	if err != nil || len(first.GetGenerations()) != 1 || first.GetGenerations()[0].GetRootHash() == "" {
		t.Fatalf("before the first rotation: %v, %v", first, err)
	}
	_, err = r.Authority.WithdrawAuthority(ctx, &pb.WithdrawAuthorityRequest{Generation: 1})
	if failure.ReasonOf(err) != "AUTHORITY_NOT_FOUND" {
		t.Errorf("the only generation is withdrawn: %v", err)
	}
	var hashes []string
	for range 2 {
		got, err := r.Authority.RotateAuthority(ctx, &pb.RotateAuthorityRequest{Comment: "yearly"})
		if err != nil || len(got.GetGenerations()) != 2 {
			t.Fatalf("rotate: %v, %v", got, err)
		}
		if n := strings.Count(string(got.GetTrustBundlePem()), "BEGIN CERTIFICATE"); n != 2 {
			t.Errorf("clients trust %d roots", n)
		}
		hashes = append(hashes, got.GetGenerations()[0].GetRootHash())
	}
	if hashes[0] != hashes[1] {
		t.Error("a repeat makes another CA")
	}
	got, err := r.Authority.WithdrawAuthority(ctx, &pb.WithdrawAuthorityRequest{Generation: 1, Comment: "done"})
	if err != nil || got.GetGenerations()[1].GetWithdrawnAt() == nil || got.GetGenerations()[1].GetVouchedUntil() == nil {
		t.Fatalf("withdraw: %v, %v", got, err)
	}
	if n := strings.Count(string(got.GetTrustBundlePem()), "BEGIN CERTIFICATE"); n != 1 {
		t.Errorf("clients trust %d roots", n)
	}
	again, err := r.Authority.WithdrawAuthority(ctx, &pb.WithdrawAuthorityRequest{Generation: 1})
	if err != nil || !again.GetGenerations()[1].GetWithdrawnAt().AsTime().Equal(got.GetGenerations()[1].GetWithdrawnAt().
		AsTime()) {
		t.Errorf("a repeat: %v, %v", again, err)
	}
	log, err := r.Admin.ListAuditLog(ctx, &pb.ListAuditLogRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, e := range log.GetEntries() {
		verbs = append(verbs, e.GetVerb()+" "+e.GetTargetId())
	}
	slices.Reverse(verbs)
	if want := []string{"ROTATE_AUTHORITY authority/2", "WITHDRAW_AUTHORITY authority/1"}; !slices.Equal(verbs, want) {
		t.Errorf("audit log %v, want %v", verbs, want)
	}
}

func TestNoKeyIsShown(t *testing.T) {
	r := publictest.NewRig(t)
	got, err := r.Authority.RotateAuthority(t.Context(), &pb.RotateAuthorityRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got.String(), "PRIVATE") {
		t.Error("a private key is shown")
	}
	all, err := r.Store.Authorities.Authorities(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, g := range all {
		if strings.Contains(string(g.Sealed), "PRIVATE") {
			t.Errorf("the keys of generation %d are stored in the clear", g.Number)
		}
	}
	if len(all[1].Sealed) == 0 {
		t.Error("other controllers do not get the keys")
	}
}
