package public_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
)

// An operate token that points a machine at an address of its own would get the password sent there.
func TestOnlyAnAdminDecidesWhereAPasswordGoes(t *testing.T) {
	r := publictest.NewRig(t)
	operate := publictest.AsOperator(t.Context())
	spec := &pb.MachineSpec{
		Site: "lab", BmcEndpoint: "10.0.0.7", BmcCredentialsRef: "rack", Rack: "r1",
		SshEndpoint: "10.0.1.7:22", SshCredentialsRef: "rack", SshHostKeys: []string{"SHA256:" + strings.Repeat("A", 43)},
	}
	_, err := r.Machines.RegisterMachine(operate,
		&pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Spec: spec}})
	publictest.Wants(t, err, failure.KindDenied, "SCOPE_TOO_SMALL", "machine.spec.bmc_endpoint")
	m, err := r.Machines.RegisterMachine(t.Context(),
		&pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Spec: spec}})
	if err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*pb.MachineSpec){
		"bmc_endpoint":        func(s *pb.MachineSpec) { s.BmcEndpoint = "192.0.2.66" },
		"bmc_credentials_ref": func(s *pb.MachineSpec) { s.BmcCredentialsRef = "other" },
		"ssh_endpoint":        func(s *pb.MachineSpec) { s.SshEndpoint = "192.0.2.66:22" },
		"ssh_credentials_ref": func(s *pb.MachineSpec) { s.SshCredentialsRef = "other" },
		"ssh_host_keys":       func(s *pb.MachineSpec) { s.SshHostKeys = []string{"SHA256:" + strings.Repeat("B", 43)} },
		"site":                func(s *pb.MachineSpec) { s.Site = "elsewhere" },
	} {
		bad := proto.CloneOf(m)
		change(bad.Spec)
		_, err := r.Machines.UpdateMachine(operate, &pb.UpdateMachineRequest{Machine: bad})
		publictest.Wants(t, err, failure.KindDenied, "SCOPE_TOO_SMALL", "machine.spec."+field)
		_, err = r.Machines.RegisterMachine(operate, &pb.RegisterMachineRequest{Machine: bad})
		publictest.Wants(t, err, failure.KindDenied, "SCOPE_TOO_SMALL", "machine.spec."+field)
	}
	same := proto.CloneOf(m)
	same.Spec.Rack = "r2"
	if got, err := r.Machines.UpdateMachine(operate, &pb.UpdateMachineRequest{Machine: same}); err != nil ||
		got.GetSpec().GetRack() != "r2" {
		t.Errorf("the unchanged values sent back: %v, %v", got, err)
	}
	moved := proto.CloneOf(m)
	moved.Spec.BmcEndpoint, moved.Version = "10.0.0.8", 0
	if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: moved}); err != nil {
		t.Errorf("an admin: %v", err)
	}
	// Without credentials nothing connects to an SSH endpoint: it is a note.
	note := &pb.Machine{MachineId: "m-2", Spec: &pb.MachineSpec{Site: "lab", SshEndpoint: "10.0.1.8:22"}}
	for _, endpoint := range []string{"10.0.1.8:22", "192.0.2.66:22"} {
		note.Spec.SshEndpoint = endpoint
		if _, err := r.Machines.RegisterMachine(operate, &pb.RegisterMachineRequest{Machine: note}); err != nil {
			t.Errorf("a note of %s: %v", endpoint, err)
		}
	}
}

func TestPlansAreInTheAuditLogWithTheirSource(t *testing.T) {
	r := publictest.NewRig(t)
	p := &pb.Plan{PlanId: "mine", Steps: []*pb.Step{{Name: "one", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}}}}
	if _, err := r.Plans.CreatePlan(publictest.AsOperator(t.Context()), &pb.CreatePlanRequest{Plan: p}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{Actor: "op-team"})
	if err != nil || len(got.GetEntries()) != 1 || got.GetEntries()[0].GetVerb() != "CREATE_PLAN" ||
		!strings.Contains(string(got.GetEntries()[0].GetEventData()), `"source_address": "192.0.2.9"`) {
		t.Errorf("%v, %v", got, err)
	}
}

// One row of the audit log may be large; a page of many must still be an answer that clients take.
func TestAPageOfTheAuditLogIsBounded(t *testing.T) {
	r := publictest.NewRig(t)
	const many = 100
	for range many {
		change := access.FileChange{Added: []string{strings.Repeat("x", 80_000)}, At: time.Now()}
		if err := r.Store.Credentials.RecordTokenFile(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	rows, token := 0, ""
	for {
		got, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: "token-file", PageSize: 1000,
			PageToken: token},
			grpc.MaxCallRecvMsgSize(4<<20))
		if err != nil {
			t.Fatal(err)
		}
		rows += len(got.GetEntries())
		if token = got.GetNextPageToken(); token == "" {
			break
		}
	}
	if rows != many {
		t.Errorf("%d rows of %d", rows, many)
	}
}

func TestTokensOfTheDatabase(t *testing.T) {
	r := publictest.NewRig(t)
	made, err := r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: "ci", Scope: "operate"})
	if err != nil || !strings.HasPrefix(made.GetSecret(), auth.TokenPrefix) || made.GetToken().GetExpiresAt() == nil {
		t.Fatalf("%v, %v", made, err)
	}
	_, err = r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: "ci", Scope: "read"})
	publictest.Wants(t, err, exists, "API_TOKEN_EXISTS", "name")
	_, err = r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: "x", Scope: "root"})
	publictest.Wants(t, err, invalid, "INVALID_FIELD", "scope")
	list, err := r.Admin.ListAPITokens(t.Context(), &pb.ListAPITokensRequest{})
	if err != nil || len(list.GetTokens()) != 1 || list.GetTokens()[0].GetName() != "ci" ||
		list.GetTokens()[0].GetSource() != "database" || list.GetTotalSize() != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := r.Admin.CreateAPIToken(t.Context(),
		&pb.CreateAPITokenRequest{Name: "cd", Scope: "read"}); err != nil {
		t.Fatal(err)
	}
	first, err := r.Admin.ListAPITokens(t.Context(), &pb.ListAPITokensRequest{PageSize: 1})
	if err != nil || len(first.GetTokens()) != 1 || first.GetTotalSize() != 2 {
		t.Fatalf("a page of one: %v, %v", first, err)
	}
	last, err := r.Admin.ListAPITokens(t.Context(),
		&pb.ListAPITokensRequest{PageSize: 1, PageToken: first.GetNextPageToken()})
	if err != nil || len(last.GetTokens()) != 1 || last.GetTotalSize() != 2 || last.GetNextPageToken() != "" ||
		last.GetTokens()[0].GetName() == first.GetTokens()[0].GetName() {
		t.Errorf("the last page: %v, %v", last, err)
	}
	if strings.Contains(list.String(), made.GetSecret()) {
		t.Error("the list shows the secret")
	}
	id := made.GetToken().GetTokenId()
	if gone, err := r.Admin.RevokeAPIToken(t.Context(), &pb.RevokeAPITokenRequest{TokenId: id}); err != nil ||
		gone.GetRevokedAt() == nil {
		t.Errorf("%v, %v", gone, err)
	}
	_, err = r.Admin.RevokeAPIToken(t.Context(), &pb.RevokeAPITokenRequest{TokenId: "tk-none"})
	publictest.Wants(t, err, notFound, "API_TOKEN_NOT_FOUND", "token_id")
	audit, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: id})
	if err != nil || len(audit.GetEntries()) != 2 {
		t.Errorf("%v, %v", audit, err)
	}
}
