package cli

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var someBinding = &pb.RoleBinding{BindingId: "rb-1", Role: "operator", Group: "night", Selection: "site=a",
	ExpiresAt: at(3600), CreatedAt: at(0), CreatedBy: "boss"}

func (f *fakeServer) GetCaller(context.Context, *pb.GetCallerRequest) (*pb.Caller, error) {
	return &pb.Caller{
		Name:      "ada",
		Kind:      "person",
		Issuer:    "https://p.test",
		Subject:   "7",
		Groups:    []string{"night", "ops"},
		SessionId: "ss-1",
		ExpiresAt: at(3600),
		Roles: []*pb.Caller_Role{{Role: "operator", Selection: "site=a",
			BindingId: "rb-1"}, {Role: "viewer", BindingId: "rb-2"}},
	}, nil
}

func (f *fakeServer) GetSignOn(context.Context, *pb.GetSignOnRequest) (*pb.SignOn, error) {
	return nil, refuse(codes.FailedPrecondition, pb.Reason_SIGN_ON_OFF, "people do not sign on here", nil)
}

func (f *fakeServer) CreateRoleBinding(_ context.Context, r *pb.CreateRoleBindingRequest) (*pb.RoleBinding, error) {
	f.sent = append(f.sent, r)
	return someBinding, nil
}

func (f *fakeServer) ListRoleBindings(
	context.Context, *pb.ListRoleBindingsRequest,
) (*pb.ListRoleBindingsResponse, error) {
	return &pb.ListRoleBindingsResponse{Bindings: []*pb.RoleBinding{someBinding,
		{BindingId: "rb-2", Role: "viewer", Subject: "7"}}}, nil
}

func (f *fakeServer) DeleteRoleBinding(_ context.Context, r *pb.DeleteRoleBindingRequest) (*pb.RoleBinding, error) {
	f.sent = append(f.sent, r)
	return someBinding, nil
}

func (f *fakeServer) ListSessions(_ context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.ListSessionsResponse{Sessions: []*pb.Session{{SessionId: "ss-1", Name: "ada", Subject: "7",
		ExpiresAt: at(3600)}}}, nil
}

func (f *fakeServer) RevokeSession(_ context.Context, r *pb.RevokeSessionRequest) (*pb.Session, error) {
	f.sent = append(f.sent, r)
	return &pb.Session{SessionId: r.GetSessionId()}, nil
}

func TestPeopleAndRoles(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"whoami"}, 0, []string{"ada", "night, ops", "site=a", "all"}},
		{[]string{"role", "list"}, 0, []string{"rb-1", "group night", "subject 7", "site=a"}},
		{[]string{"role", "grant", "operator", "--group", "night", "--select", "site=a", "--for", "1h"}, 0,
			[]string{"Granted operator to group night on machines site=a until"}},
		{[]string{"role", "grant", "operator"}, 1, []string{"group", "subject"}},
		{[]string{"role", "revoke", "rb-1"}, 0, []string{"Revoked operator"}},
		{[]string{"session", "list"}, 0, []string{"ss-1", "ada"}},
		{[]string{"session", "revoke", "ss-1"}, 0, []string{"Revoked ss-1"}},
	} {
		f := &fakeServer{}
		got := f.run(t, c.args...)
		for _, text := range c.says {
			if got.code != c.code || !strings.Contains(got.out+got.err, text) {
				t.Errorf("%v: %+v, want %q", c.args, got, text)
			}
		}
	}
	f := &fakeServer{}
	f.run(t, "role", "grant", "viewer", "--subject", "7")
	if r, ok := f.sent[0].(*pb.CreateRoleBindingRequest); !ok || r.GetBinding().GetSubject() != "7" ||
		r.GetBinding().GetExpiresAt() != nil {
		t.Errorf("sent %v", f.sent)
	}
}

// generation is one of the CA's, made an hour before the next.
func generation(n int32) *pb.Authority_Generation {
	return &pb.Authority_Generation{Generation: n, RootHash: strings.Repeat("ab", 4) + "-" + strings.Repeat("c", int(n)),
		RootPem: []byte("root\n"), CreatedAt: at(3600 * int(n)), EndsAt: at(1e6)}
}

// GetAuthority answers for a CA that is being rotated; each look finds one holder less.
func (f *fakeServer) GetAuthority(context.Context, *pb.GetAuthorityRequest) (*pb.Authority, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &pb.Authority{Generations: []*pb.Authority_Generation{generation(2), generation(1)},
		HolderCount: max(0, 2-f.looks), TrustBundlePem: []byte("new\nold\n")}
	f.looks++
	out.Holders = []*pb.Authority_Holder{
		{AgentId: "a-1", MachineId: "machine-1", Role: "host", Generation: 1, Connected: true, CertificateEndsAt: at(7200)},
		{AgentId: "a-2", Site: "berlin", Role: "site", Generation: 1, CertificateEndsAt: at(3600)},
	}[:out.GetHolderCount()]
	return out, nil
}

func (f *fakeServer) RotateAuthority(ctx context.Context, r *pb.RotateAuthorityRequest) (*pb.Authority, error) {
	f.sent = append(f.sent, r)
	return f.GetAuthority(ctx, nil)
}

func (f *fakeServer) WithdrawAuthority(
	_ context.Context, r *pb.WithdrawAuthorityRequest,
) (*pb.Authority, error) {
	f.sent = append(f.sent, r)
	if f.looks == 0 && len(r.GetLeaveBehind()) == 0 {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_AUTHORITY_IN_USE, "2 agents hold a certificate", nil)
	}
	old := generation(1)
	old.WithdrawnAt, old.VouchedUntil = at(0), at(90*86400)
	return &pb.Authority{Generations: []*pb.Authority_Generation{generation(2), old}}, nil
}

func TestAuthorityCommands(t *testing.T) {
	golden(t, "ca", fleet,
		"ca status",
		"ca status -o name",
		"ca rotate --comment leak",
		"ca rotate --no-wait",
		"ca withdraw 1",
		"ca withdraw 1 --leave-behind machine-1,a-2 --comment gone",
		"ca withdraw one",
		"ca roots",
	)
}
