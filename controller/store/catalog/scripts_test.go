package catalog_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func addScript(t testing.TB, s *store.Store, ref string, destructive bool) *pb.Script {
	t.Helper()
	sc, err := s.Catalog.AddScript(t.Context(), &pb.Script{
		ScriptRef: ref, Sha256: "sum of " + ref, SizeBytes: 7, Interpreter: "/bin/sh", Destructive: destructive,
	}, nothing, "tester", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func scriptPlan(t testing.TB, s *store.Store, id, ref string, args ...string) {
	t.Helper()
	_, err := s.Catalog.CreatePlan(t.Context(), &pb.Plan{PlanId: id, Steps: []*pb.Step{{
		Name: "run", Kind: &pb.Step_Ssh{Ssh: &pb.SshCommand{Command: ref, Args: args}},
	}}}, "tester", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
}

const fingerprint = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func sshMachine(t testing.TB, s *store.Store, id string, change func(*pb.MachineSpec)) {
	t.Helper()
	spec := &pb.MachineSpec{SshEndpoint: "10.0.0.1:22", SshHostKeys: []string{fingerprint}, SshCredentialsRef: "rack"}
	if change != nil {
		change(spec)
	}
	if _, err := s.Machines.Register(t.Context(), &pb.Machine{MachineId: id, Spec: spec}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
}

func runScript(t testing.TB, s *store.Store, machineID, planID string) (*pb.Operation, error) {
	t.Helper()
	op, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{
		MachineID: machineID, RequestID: "run " + planID, Type: fleet.RunPlan, PlanID: planID, Actor: "tester",
	}, storetest.Now())
	return op, err
}

func TestAScriptNeverChanges(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	first := addScript(t, s, "fix", false)
	if again := addScript(t, s, "fix", false); !proto.Equal(first, again) {
		t.Errorf("again: %v, first %v", again, first)
	}
	_, err := s.Catalog.AddScript(t.Context(), &pb.Script{ScriptRef: "fix", Sha256: "other", Interpreter: "/bin/sh"},
		nothing, "tester", storetest.Now())
	storetest.WantReason(t, err, "SCRIPT_EXISTS")
	broken := errors.New("no room")
	_, err = s.Catalog.AddScript(
		t.Context(),
		&pb.Script{ScriptRef: "x", Sha256: "x"},
		func() error { return broken },
		"tester",
		storetest.Now(),
	)
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	_, err = s.Catalog.GetScript(t.Context(), "x")
	storetest.WantReason(t, err, "SCRIPT_NOT_FOUND")
	if unnamed, err := s.Catalog.UnnamedBlobs(t.Context(), []string{"sum of fix", "nobody's"}); err != nil ||
		len(unnamed) != 1 ||
		unnamed[0] != "nobody's" {
		t.Errorf("unnamed %v %v", unnamed, err)
	}
	if err := s.Catalog.DropBlob(t.Context(), "sum of fix", func() error { return errors.New("dropped") }); err != nil {
		t.Errorf("the bytes of a script: %v", err)
	}
}

func TestAScriptNeedsAMachineThatIsKnown(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	scriptPlan(t, s, "p", "fix")
	sshMachine(t, s, "m-1", nil)
	storetest.Maintenance(t, s, "m-1")
	_, err := runScript(t, s, "m-1", "p")
	storetest.WantReason(t, err, "SCRIPT_NOT_FOUND")
	addScript(t, s, "fix", false)
	_, err = runScript(t, s, "m-1", "p")
	storetest.WantReason(t, err, "CREDENTIALS_NOT_FOUND")
	if _, err := s.Credentials.SetSSHCredentials(t.Context(), "rack", []byte("sealed"), "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]struct {
		change func(*pb.MachineSpec)
		reason string
	}{
		"no-endpoint":    {func(m *pb.MachineSpec) { m.SshEndpoint = "" }, "SSH_NOT_CONFIGURED"},
		"no-credentials": {func(m *pb.MachineSpec) { m.SshCredentialsRef = "" }, "SSH_NOT_CONFIGURED"},
		"no-host-key":    {func(m *pb.MachineSpec) { m.SshHostKeys = nil }, "SSH_HOST_KEY_UNKNOWN"},
	} {
		sshMachine(t, s, id, c.change)
		storetest.Maintenance(t, s, id)
		_, err := runScript(t, s, id, "p")
		storetest.WantReason(t, err, c.reason)
	}
	op, err := runScript(t, s, "m-1", "p")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Catalog.RemoveScript(t.Context(), "fix", "tester", storetest.Now())
	if e := storetest.WantReason(t, err, "SCRIPT_IN_USE"); e.Metadata["operation_id"] != op.GetOperationId() {
		t.Errorf("metadata %v", e.Metadata)
	}
	if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Catalog.RemoveScript(t.Context(), "fix", "tester", storetest.Now()); err != nil {
		t.Error(err)
	}
}

// A script that is destructive by its catalogue entry is gated like a reimage, whatever the step says.
func TestADestructiveScriptNeedsMaintenance(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	addScript(t, s, "wipe", true)
	addScript(t, s, "look", false)
	scriptPlan(t, s, "wipe", "wipe")
	scriptPlan(t, s, "look", "look")
	if _, err := s.Credentials.SetSSHCredentials(t.Context(), "rack", []byte("sealed"), "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	sshMachine(t, s, "m-1", nil)
	storetest.Maintenance(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance})
	storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	_, err := runScript(t, s, "m-1", "wipe")
	storetest.WantReason(t, err, "WRONG_PHASE")
	if _, err := runScript(t, s, "m-1", "look"); err != nil {
		t.Error(err)
	}
}

// The site's agent gets the digest with the command, and nobody else gets the command.
func TestAScriptGoesToTheSite(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	addScript(t, s, "fix", false)
	scriptPlan(t, s, "p", "fix", "a b", "$(id)")
	if _, err := s.Credentials.SetSSHCredentials(t.Context(), "rack", []byte("sealed"), "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	sshMachine(t, s, "m-1", nil)
	own := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-m-1", MachineID: "m-1"})
	storetest.Open(t, s, own.Hello("st-1", "boot-1"))
	storetest.Maintenance(t, s, "m-1")
	op, err := runScript(t, s, "m-1", "p")
	if err != nil {
		t.Fatal(err)
	}
	if a := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{}); len(a.Send) != 0 ||
		a.Decision.Op.WaitReason != operation.WaitAgent {
		t.Fatalf("without a site agent: %+v", a)
	}
	agent := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	h := agent.Hello("st-2", "boot-2")
	h.Capabilities = []string{"power", "provider:agent", "ssh"}
	storetest.Open(t, s, h)
	a := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	if len(a.Send) != 1 || a.Send[0].ExecutorID != agent.ID {
		t.Fatalf("sent %+v", a.Send)
	}
	var spec fleetv1.CommandSpec
	if err := proto.Unmarshal(a.Send[0].Spec, &spec); err != nil {
		t.Fatal(err)
	}
	want := &fleetv1.ScriptAction{
		ScriptRef: "fix", Sha256: "sum of fix", SizeBytes: 7, Interpreter: "/bin/sh", Args: []string{"a b", "$(id)"},
		Endpoint: "10.0.0.1:22",
		HostKeys: []string{fingerprint}, CredentialsRef: "rack",
	}
	if !proto.Equal(spec.GetScript(), want) || !spec.GetNeedsGrant() {
		t.Errorf("told %v", &spec)
	}
	sealed, err := s.Credentials.SSHCredentialsFor(t.Context(), agent.ID, "m-1", "rack", storetest.Now())
	if err != nil || string(sealed.Sealed) != "sealed" {
		t.Errorf("credentials %v %v", sealed.Ref, err)
	}
	_, err = s.Credentials.SSHCredentialsFor(t.Context(), own.ID, "m-1", "rack", storetest.Now())
	storetest.WantReason(t, err, "SCOPE_TOO_SMALL")
	_, err = s.Credentials.SSHCredentialsFor(t.Context(), agent.ID, "m-1", "other", storetest.Now())
	storetest.WantReason(t, err, "CREDENTIALS_NOT_FOUND")
	_, err = s.Credentials.DeleteSSHCredentials(t.Context(), "rack", "tester", storetest.Now())
	storetest.WantReason(t, err, "CREDENTIALS_IN_USE")
}

// Without a BMC a site agent has no way to switch a machine, SSH or not.
func TestSSHIsNoPowerSwitch(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	sshMachine(t, s, "m-1", nil)
	agent := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	h := agent.Hello("st-2", "boot-2")
	h.Capabilities = []string{"power", "reboot", "provider:agent", "ssh"}
	storetest.Open(t, s, h)
	storetest.Maintenance(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "reboot", Type: fleet.Reboot})
	if a := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{}); len(a.Send) != 0 {
		t.Errorf("sent %+v", a.Send)
	}
}

func TestRMAThereAndBack(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	rma := func(request, planID string) error {
		op, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: request,
			Type: fleet.RMAType, PlanID: planID, Actor: "tester"}, storetest.Now())
		if err != nil {
			return err
		}
		if a := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{}); a.Phase != operation.Succeeded {
			t.Errorf("%s: %s", request, a.Phase)
		}
		return nil
	}
	if err := rma("there", ""); err != nil {
		t.Fatal(err)
	}
	m := storetest.Machine(t, s, "m-1")
	if m.GetStatus().GetEffectiveState() != pb.MachineStatus_BLOCKED || !storetest.Condition(m, fleet.RMA).GetStatus() {
		t.Errorf("after the RMA: %s", m.GetStatus().GetEffectiveState())
	}
	for _, op := range []fleet.OperationType{fleet.Reboot, fleet.ExitMaintenance, fleet.EnterMaintenance, fleet.RMAType} {
		_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1",
			RequestID: "no " + string(op), Type: op, Actor: "tester"}, storetest.Now())
		storetest.WantReason(t, err, "MACHINE_BLOCKED")
	}
	_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "run",
		Type: fleet.RunPlan, PlanID: "rma-return", Actor: "tester"}, storetest.Now())
	storetest.WantReason(t, err, "MACHINE_BLOCKED")
	if err := rma("back", "rma-return"); err != nil {
		t.Fatal(err)
	}
	m = storetest.Machine(t, s, "m-1")
	if m.GetStatus().GetEffectiveState() != pb.MachineStatus_MAINTENANCE_IDLE ||
		storetest.Condition(m, fleet.RMA).GetStatus() {
		t.Errorf("after its return: %s", m.GetStatus().GetEffectiveState())
	}
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "Retired", true, "tester", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.WantReason(t, rma("retired", "rma-return"), "MACHINE_BLOCKED")
}
