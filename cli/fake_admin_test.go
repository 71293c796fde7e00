package cli

import (
	"context"
	"google.golang.org/grpc/codes"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var (
	someAgent = &pb.Agent{
		AgentId: "a-1", Role: pb.AgentRole_AGENT_ROLE_SITE, Site: "lab", Connected: true, Version: "v1",
		LockedReason: "at work",
		Capabilities: []string{"reboot"},
		Certs:        []*pb.AgentCert{{Fingerprint: "f00d", NotAfter: at(1), RevokedAt: at(2), RevokedReason: "lost"}},
	}
	someToken = &pb.BootstrapToken{TokenId: "t-1", MachineId: "machine-1", Role: pb.AgentRole_AGENT_ROLE_HOST,
		ExpiresAt: at(9), RevokedAt: at(3)}
	someRun = &pb.Run{
		RunId: "op-1", MachineId: "machine-1", Type: "REPAVE", PlanId: "repave", Phase: pb.Run_RUNNING,
		CurrentStep: "netboot",
		Steps: []*pb.StepStatus{{Name: "netboot", Kind: "netboot", State: pb.StepStatus_RUNNING, RetryCount: 2,
			CommandId: "cmd-1"}},
	}
	somePlan = &pb.Plan{PlanId: "twice", DisplayName: "Reboot twice", Steps: []*pb.Step{
		{Name: "first", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}, TimeoutSeconds: 600}, {Name: "second", MaxRetries: -1},
	}}
)

func (f *fakeServer) ListAgents(context.Context, *pb.ListAgentsRequest) (*pb.ListAgentsResponse, error) {
	return &pb.ListAgentsResponse{Agents: append([]*pb.Agent{someAgent}, f.agents...)}, nil
}

func (f *fakeServer) GetAgent(context.Context, *pb.GetAgentRequest) (*pb.Agent, error) {
	return someAgent, nil
}

func (f *fakeServer) RevokeAgent(_ context.Context, r *pb.RevokeAgentRequest) (*pb.Agent, error) {
	f.sent = append(f.sent, r)
	return someAgent, nil
}

func (f *fakeServer) IssueBootstrapToken(
	_ context.Context, r *pb.IssueBootstrapTokenRequest,
) (*pb.IssueBootstrapTokenResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.IssueBootstrapTokenResponse{Token: someToken, Bundle: "ingot1.bundle"}, nil
}

func (f *fakeServer) ListBootstrapTokens(
	context.Context, *pb.ListBootstrapTokensRequest,
) (*pb.ListBootstrapTokensResponse, error) {
	return &pb.ListBootstrapTokensResponse{Tokens: []*pb.BootstrapToken{someToken}}, nil
}

func (f *fakeServer) ForgetTPM(_ context.Context, r *pb.ForgetTPMRequest) (*pb.Machine, error) {
	f.sent = append(f.sent, r)
	return f.find(r.GetMachineId())
}

func (f *fakeServer) RequireIdentity(
	_ context.Context, r *pb.RequireIdentityRequest,
) (*pb.RequireIdentityResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.RequireIdentityResponse{Site: r.GetSite(), Group: r.GetGroup(), Level: r.GetLevel()}, nil
}

func (f *fakeServer) SetMachineFlag(_ context.Context, r *pb.SetMachineFlagRequest) (*pb.Machine, error) {
	f.sent = append(f.sent, r)
	return f.find(r.GetMachineId())
}

func (f *fakeServer) ClearIntervention(_ context.Context, r *pb.ClearInterventionRequest) (*pb.Machine, error) {
	f.sent = append(f.sent, r)
	return f.find(r.GetMachineId())
}

func (f *fakeServer) ListCommands(context.Context, *pb.ListCommandsRequest) (*pb.ListCommandsResponse, error) {
	return &pb.ListCommandsResponse{Commands: []*pb.Command{{
		CommandId: "cmd-1", Step: "boot", Attempt: 1, Kind: "reboot", State: "DONE", Outcome: "SUCCEEDED",
		ExecutorAgentId: "a-1", GrantedAt: at(5),
	}}}, nil
}

func (f *fakeServer) ListAuditLog(_ context.Context, r *pb.ListAuditLogRequest) (*pb.ListAuditLogResponse, error) {
	f.sent = append(f.sent, r)
	if f.audit != nil {
		return &pb.ListAuditLogResponse{Entries: f.audit}, nil
	}
	return &pb.ListAuditLogResponse{Entries: []*pb.AuditEntry{{
		AuditId: 7, Ts: at(1), Actor: "op-team", Verb: "EnterMaintenance", TargetId: "machine-1",
		EventData: []byte(`{"comment":"swap"}`),
	}}}, nil
}

func (f *fakeServer) GetMachineTimeline(
	context.Context, *pb.GetMachineTimelineRequest,
) (*pb.GetMachineTimelineResponse, error) {
	return &pb.GetMachineTimelineResponse{
		Entries: []*pb.TimelineEntry{{Seq: 2, Ts: at(1), Kind: "audit", Actor: "op-team", OperationId: "op-1",
			Summary: "REIMAGE", Hash: []byte{0xab}}},
		State: &pb.TimelineState{
			Seq: 2, Ts: at(1), OperationId: "op-1", OperationType: "REIMAGE", OperationPhase: "RUNNING",
			OpenCommands: map[string]string{"cmd-1": "SENT"},
			Status: &pb.MachineStatus{
				Phase:      pb.MachineStatus_MAINTENANCE,
				Conditions: []*pb.Condition{{Type: "NeedsIntervention", Status: true, LastTransition: at(1)}, {Type: "Reachable"}},
			},
		},
	}, nil
}

// VerifyTimeline returns two histories, one a page; those named in broken are at fault.
func (f *fakeServer) VerifyTimeline(
	_ context.Context, r *pb.VerifyTimelineRequest,
) (*pb.VerifyTimelineResponse, error) {
	one := func(id string) []*pb.TimelineVerdict {
		v := &pb.TimelineVerdict{MachineId: id, Entries: 2, HeadHash: []byte{0xab, 0xcd}, HeadAt: at(1),
			Ok: id != f.broken || id == ""}
		if !v.GetOk() {
			v.BrokenSeq, v.BrokenWhy = 2, "has been changed"
		}
		return []*pb.TimelineVerdict{v}
	}
	switch {
	case r.GetMachineId() != "":
		return &pb.VerifyTimelineResponse{Verdicts: one(r.GetMachineId()), Total: 1}, nil
	case r.GetPageToken() == "":
		return &pb.VerifyTimelineResponse{Verdicts: one(""), NextPageToken: "2", Total: 2}, nil
	}
	return &pb.VerifyTimelineResponse{Verdicts: one("machine-1"), Total: 2}, nil
}

// GetHeadVerdicts has lost the heads of f.lost, and explains those of f.restored.
func (f *fakeServer) GetHeadVerdicts(
	_ context.Context, r *pb.GetHeadVerdictsRequest,
) (*pb.GetHeadVerdictsResponse, error) {
	out := &pb.GetHeadVerdictsResponse{}
	for _, h := range r.GetHeads() {
		v := &pb.HeadVerdict{MachineId: h.GetMachineId(), Finding: pb.HeadFinding_HEAD_FINDING_KEPT}
		switch h.GetMachineId() {
		case "":
		case f.lost:
			v.Finding, v.Why = pb.HeadFinding_HEAD_FINDING_LOST, "the history ends before entry 2"
		case f.restored:
			v.Finding, v.Why = pb.HeadFinding_HEAD_FINDING_RESTORED, "entries 2 to 2 were lost"
		}
		out.Verdicts = append(out.Verdicts, v)
	}
	return out, nil
}

// ListControllers returns one that serves and, asked for all, one that has ended.
func (f *fakeServer) ListControllers(
	_ context.Context, r *pb.ListControllersRequest,
) (*pb.ListControllersResponse, error) {
	out := &pb.ListControllersResponse{Controllers: []*pb.Controller{{
		ControllerId: "c-2", Version: "v9", Hostname: "ctl-2", State: pb.Controller_DRAINING, Sessions: 1200, Leads: true,
		Answering: true,
		StartedAt: at(0), LeaseUntil: timestamppb.New(time.Now().Add(time.Hour)), DrainingSince: at(1),
	}}}
	if r.GetAll() {
		out.Controllers = append(out.Controllers, &pb.Controller{ControllerId: "c-1", Version: "v8",
			State: pb.Controller_GONE, LeaseUntil: at(0)})
	}
	return out, nil
}

func (f *fakeServer) GetServerInfo(context.Context, *pb.GetServerInfoRequest) (*pb.ServerInfo, error) {
	if len(f.serverInfos) > 0 {
		err := f.serverInfos[0]
		f.serverInfos = f.serverInfos[1:]
		if err != nil {
			return nil, err
		}
	}
	return &pb.ServerInfo{Version: "v9", ControllerId: "c-1", SchemaVersion: 3, NotWired: []string{"WEBHOOKS_NOT_WIRED"}},
		nil
}

func (f *fakeServer) ListPlans(context.Context, *pb.ListPlansRequest) (*pb.ListPlansResponse, error) {
	return &pb.ListPlansResponse{Plans: []*pb.Plan{somePlan}}, nil
}

func (f *fakeServer) GetPlan(context.Context, *pb.GetPlanRequest) (*pb.Plan, error) {
	return somePlan, nil
}

func (f *fakeServer) CreatePlan(_ context.Context, r *pb.CreatePlanRequest) (*pb.Plan, error) {
	f.sent = append(f.sent, r)
	return r.GetPlan(), nil
}

func (f *fakeServer) StartRun(_ context.Context, r *pb.StartRunRequest) (*pb.Run, error) {
	f.sent = append(f.sent, r)
	if r.GetValidateOnly() {
		return &pb.Run{MachineId: r.GetMachineId(), PlanId: r.GetPlanId()}, nil
	}
	return someRun, nil
}

func (f *fakeServer) GetRun(context.Context, *pb.GetRunRequest) (*pb.Run, error) { return someRun, nil }

func (f *fakeServer) ListRuns(context.Context, *pb.ListRunsRequest) (*pb.ListRunsResponse, error) {
	return &pb.ListRunsResponse{Runs: []*pb.Run{someRun}}, nil
}

// WatchRuns breaks once and then sends the end.
func (f *fakeServer) WatchRuns(r *pb.WatchRunsRequest, s pb.RunService_WatchRunsServer) error {
	f.runWatches = append(f.runWatches, r)
	if f.onRunWatch != nil {
		f.onRunWatch()
	}
	ev := &pb.RunEvent{Ts: at(1), Snapshot: someRun, Cursor: "r1", Seq: 1, Message: "begun"}
	if r.GetCursor() == "r1" {
		ev = &pb.RunEvent{Ts: at(2), Snapshot: &pb.Run{RunId: "op-1", MachineId: "machine-1", Phase: pb.Run_FAILED},
			Cursor: "r2", Seq: 2, Message: "over"}
	}
	if err := s.Send(ev); err != nil {
		return err
	}
	return lostConnection
}

func (f *fakeServer) StreamRunLogs(_ *pb.StreamRunLogsRequest, s pb.RunService_StreamRunLogsServer) error {
	return s.Send(chunk(1, "boot", "run log\n"))
}

func (f *fakeServer) ReconfigureMachine(_ context.Context, r *pb.ReconfigureMachineRequest) (*pb.Operation, error) {
	f.sent = append(f.sent, r)
	return f.op, nil
}

func (f *fakeServer) UpdateMachine(_ context.Context, r *pb.UpdateMachineRequest) (*pb.Machine, error) {
	if r.GetValidateOnly() {
		return r.GetMachine(), nil
	}
	f.sent = append(f.sent, r)
	if len(f.sent) <= f.conflicts {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_VERSION_CONFLICT, "not the current version", nil)
	}
	return r.GetMachine(), nil
}

func (f *fakeServer) GetInventory(context.Context, *pb.GetInventoryRequest) (*pb.Inventory, error) {
	return &pb.Inventory{MachineId: "machine-1", Document: []byte(`{"cpu":8}`), Simulated: true}, nil
}

func (f *fakeServer) GetHardwareTests(
	_ context.Context, r *pb.GetHardwareTestsRequest,
) (*pb.HardwareTests, error) {
	out := &pb.HardwareTests{MachineId: r.GetMachineId()}
	if r.GetMachineId() == "machine-2" {
		return out, nil
	}
	out.Tests = []*pb.HardwareTest{
		{OperationId: "op-1", FinishedAt: at(10), Model: "Acme R1", Results: []*pb.HardwareTestResult{
			{Test: "cpu", Verdict: "passed", Value: 312.4, Unit: "MHash/s", Norm: 310, NormMachines: 4},
			{Test: "disk", Part: "S1", Verdict: "failed", Detail: "SMART: the spare is used up"},
			{Test: "nic", Part: "eth0", Verdict: "passed", Value: 1000, Unit: "Mbit/s", Norm: 25000, NormMachines: 3,
				Warning: "1000 Mbit/s is far below the 25000 Mbit/s of 3 other machines of its model"},
		}},
	}
	return out, nil
}

func (f *fakeServer) GetHardwareHealth(
	_ context.Context, r *pb.GetHardwareHealthRequest,
) (*pb.HardwareHealth, error) {
	if r.GetMachineId() == "machine-2" {
		return &pb.HardwareHealth{MachineId: r.GetMachineId()}, nil
	}
	return &pb.HardwareHealth{MachineId: r.GetMachineId(), Endpoint: "10.0.0.7", ReadAt: at(10),
		Faults: []*pb.HardwareFault{{Component: "power supply PSU2", Severity: "critical", Said: "UnavailableOffline"}},
		Sensors: []*pb.HardwareSensor{
			{Kind: "power supply", Name: "PSU2", State: "UnavailableOffline", Health: "critical"},
			{Kind: "temperature", Name: "Inlet", Value: proto.Float64(23.5), Unit: "Cel", Health: "ok"}},
		Events:  []*pb.HardwareEvent{{EventId: "7", At: at(9), Severity: "critical", Message: "PSU2 lost its input"}},
		NotRead: []string{"identify light: the BMC offers none"}, IdentifyLightOrdered: "on", IdentifyLightOrderedBy: "ci",
		IdentifyLightOrderedAt: at(8)}, nil
}

func (f *fakeServer) SetIdentifyLight(
	_ context.Context, r *pb.SetIdentifyLightRequest,
) (*pb.HardwareHealth, error) {
	f.sent = append(f.sent, r)
	return &pb.HardwareHealth{MachineId: r.GetMachineId(), IdentifyLightOrdered: "on"}, nil
}

func (f *fakeServer) TestMachine(_ context.Context, r *pb.TestMachineRequest) (*pb.Operation, error) {
	f.sent = append(f.sent, r)
	return f.op, nil
}

var someAPIToken = &pb.APIToken{TokenId: "tk-1", Name: "ci", Scope: "operate", Source: "database",
	ExpiresAt: at(1 << 30), CreatedBy: "op-team"}

func (f *fakeServer) CreateAPIToken(
	_ context.Context, r *pb.CreateAPITokenRequest,
) (*pb.CreateAPITokenResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.CreateAPITokenResponse{Token: someAPIToken, Secret: "ingotb_s3cret"}, nil
}

func (f *fakeServer) ListAPITokens(context.Context, *pb.ListAPITokensRequest) (*pb.ListAPITokensResponse, error) {
	return &pb.ListAPITokensResponse{Tokens: []*pb.APIToken{{Name: "ops", Scope: "admin", Source: "file"}, someAPIToken}},
		nil
}

func (f *fakeServer) RevokeAPIToken(_ context.Context, r *pb.RevokeAPITokenRequest) (*pb.APIToken, error) {
	f.sent = append(f.sent, r)
	return someAPIToken, nil
}

func (f *fakeServer) RevokeBootstrapToken(
	_ context.Context, r *pb.RevokeBootstrapTokenRequest,
) (*pb.BootstrapToken, error) {
	f.sent = append(f.sent, r)
	return someToken, nil
}

func (f *fakeServer) ListBMCCertificates(
	context.Context, *pb.ListBMCCertificatesRequest,
) (*pb.ListBMCCertificatesResponse, error) {
	return &pb.ListBMCCertificatesResponse{Certificates: []*pb.BMCCertificate{{
		Site: "berlin", Endpoint: "10.0.0.7", MachineIds: []string{"machine-1"}, Sha256: "aaaa", OfferedSha256: "bbbb",
		OfferedAt: at(3),
	}}}, nil
}

func (f *fakeServer) UnparkBMC(_ context.Context, r *pb.UnparkBMCRequest) (*pb.UnparkBMCResponse, error) {
	f.sent = append(f.sent, r)
	return &pb.UnparkBMCResponse{Endpoint: "10.0.0.7"}, nil
}

func (f *fakeServer) TrustBMCCertificate(
	_ context.Context, r *pb.TrustBMCCertificateRequest,
) (*pb.BMCCertificate, error) {
	f.sent = append(f.sent, r)
	return &pb.BMCCertificate{Endpoint: "10.0.0.7"}, nil
}
