package admin_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestTokens(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	var want []string
	for range 3 {
		got, err := r.Admin.IssueBootstrapToken(ctx, &pb.IssueBootstrapTokenRequest{MachineId: "m-1",
			MacAddress: "52-54-00-00-00-01"})
		if err != nil {
			t.Fatal(err)
		}
		id := got.GetToken().GetTokenId()
		want = append(want, id)
		secret, ok := strings.CutPrefix(got.GetBundle(), "bundle:"+id+":")
		if !ok || len(secret) < 40 {
			t.Errorf("bundle %q", got.GetBundle())
		}
		if life := got.GetToken().GetExpiresAt().AsTime().Sub(got.GetToken().GetCreatedAt().AsTime()); life != 24*time.Hour {
			t.Errorf("lives for %v", life)
		}
	}
	slices.Reverse(want)
	var have []string
	for token := ""; len(have) == 0 || token != ""; {
		p, err := r.Admin.ListBootstrapTokens(ctx, &pb.ListBootstrapTokensRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range p.GetTokens() {
			have = append(have, b.GetTokenId())
		}
		token = p.GetNextPageToken()
	}
	if !slices.Equal(have, want) {
		t.Errorf("tokens %v, wanted %v", have, want)
	}
	gone, err := r.Admin.RevokeBootstrapToken(ctx, &pb.RevokeBootstrapTokenRequest{TokenId: want[0]})
	if err != nil || gone.GetRevokedAt() == nil {
		t.Errorf("revoked %v %v", gone, err)
	}
	site, err := r.Admin.IssueBootstrapToken(ctx, &pb.IssueBootstrapTokenRequest{
		Role: pb.AgentRole_AGENT_ROLE_SITE, Site: "default", Lifetime: durationpb.New(time.Minute)})
	if err != nil || site.GetToken().GetRole() != pb.AgentRole_AGENT_ROLE_SITE {
		t.Errorf("site token %v %v", site, err)
	}
}

func TestAudit(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	op, err := r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-1", RequestId: "q-7",
		Comment: "for Ms Example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Machines.CancelOperation(ctx,
		&pb.CancelOperationRequest{OperationId: op.GetOperationId()}); err != nil {
		t.Fatal(err)
	}
	var verbs []string
	var entry *pb.AuditEntry
	for token := ""; len(verbs) == 0 || token != ""; {
		p, err := r.Admin.ListAuditLog(ctx, &pb.ListAuditLogRequest{TargetId: "m-1", PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.GetEntries() {
			verbs = append(verbs, e.GetVerb())
			if e.GetRequestId() == "q-7" {
				entry = e
			}
		}
		token = p.GetNextPageToken()
	}
	if !slices.Equal(verbs, []string{"CANCEL", "ENTER_MAINTENANCE", "REGISTER"}) {
		t.Errorf("audit log has %v", verbs)
	}
	if entry.GetActor() != "tester" || !strings.Contains(string(entry.GetEventData()), "Ms Example") {
		t.Errorf("entry %v", entry)
	}
	n, err := r.Admin.ScrubAuditEventData(ctx, &pb.ScrubAuditEventDataRequest{TargetId: "m-1"})
	if err != nil || n.GetScrubbedRows() != 3 { // all of them hold the address of their caller
		t.Errorf("scrubbed %v %v", n, err)
	}
	all, err := r.Admin.ListAuditLog(ctx, &pb.ListAuditLogRequest{TargetId: "m-1"})
	if err != nil || strings.Contains(all.String(), "Example") || len(all.GetEntries()) != 4 {
		t.Errorf("after the scrub %v %v", all, err)
	}
}

func TestFlagsAndIntervention(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	set := func(v bool) *pb.Machine {
		t.Helper()
		m, err := r.Admin.SetMachineFlag(ctx, &pb.SetMachineFlagRequest{MachineId: "m-1", Flag: "RMA", Value: v})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := set(true); m.GetStatus().GetEffectiveState() != pb.MachineStatus_BLOCKED {
		t.Errorf("flagged: %v", m.GetStatus())
	}
	_, err := r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-1", RequestId: "q"})
	publictest.Wants(t, err, failure.KindPrecondition, "MACHINE_BLOCKED", "")
	if m := set(false); m.GetStatus().GetEffectiveState() != pb.MachineStatus_NEW {
		t.Errorf("cleared: %v", m.GetStatus())
	}
	if _, err := r.Admin.ClearIntervention(ctx, &pb.ClearInterventionRequest{MachineId: "m-1"}); err != nil {
		t.Error(err)
	}
	if c, err := r.Admin.ListCommands(ctx, &pb.ListCommandsRequest{MachineId: "m-1"}); err != nil ||
		len(c.GetCommands()) != 0 {
		t.Errorf("commands %v %v", c, err)
	}
	if a, err := r.Admin.ListAgents(ctx, &pb.ListAgentsRequest{Filter: "role=SITE,connected=true"}); err != nil ||
		len(a.GetAgents()) != 0 {
		t.Errorf("agents %v %v", a, err)
	}
}

func TestServerInfo(t *testing.T) {
	r := publictest.NewRig(t)
	i, err := r.Admin.GetServerInfo(t.Context(), &pb.GetServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Authority.GetAuthority(t.Context(), &pb.GetAuthorityRequest{})
	if err != nil || len(a.GetGenerations()) != 1 {
		t.Fatalf("the CA is %v, %v", a, err)
	}
	if i.GetVersion() != "v-test" || i.GetControllerId() != "c-test" || i.GetSchemaVersion() < 1 ||
		i.GetCaHash() != a.GetGenerations()[0].GetRootHash() {
		t.Errorf("info %v", i)
	}
	if !slices.Contains(i.GetNotWired(), "STAGE_NOT_WIRED") ||
		slices.Contains(i.GetNotWired(), "EXPLAIN_NOT_WIRED") || slices.Contains(i.GetNotWired(), "REPAVE_NOT_WIRED") {
		t.Errorf("not wired %v", i.GetNotWired())
	}
}
