package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

// siteAttempts are those of a site's agent that holds a valid certificate.
func siteAttempts() []Attempt {
	return []Attempt{
		{Party: Site, Attempt: "report about a machine of another site", Rule: 4, Run: reportElsewhere},
		{Party: Site, Attempt: "get credentials of another site's machine", Rule: 1, Run: credentialsElsewhere},
	}
}

// elsewhere is a machine of another site that has worked, with the API's data on it.
type elsewhere struct {
	r         *Rig
	machine   *harness.Machine
	operation string
	command   string
}

func newElsewhere(ctx context.Context, r *Rig) (*elsewhere, error) {
	e := &elsewhere{r: r, machine: r.C.NewMachine(r.T, harness.MachineOptions{SiteToo: "elsewhere"})}
	e.machine.WaitConnected()
	for i, start := range []func() (*baremetalv1.Operation, error){
		func() (*baremetalv1.Operation, error) {
			return r.C.Machines().EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: e.machine.ID,
				RequestId: "1"})
		},
		func() (*baremetalv1.Operation, error) {
			return r.C.Machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: e.machine.ID, RequestId: "2"})
		},
	} {
		op, err := start()
		if err != nil {
			return nil, err
		}
		if got := r.C.Wait(op.GetOperationId(), time.Minute); got.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			return nil, fmt.Errorf("operation %d of the other site: %v", i, got)
		}
		e.operation = op.GetOperationId()
	}
	commands, err := r.C.Admin().ListCommands(ctx, &baremetalv1.ListCommandsRequest{MachineId: e.machine.ID})
	if err != nil || len(commands.GetCommands()) == 0 {
		return nil, fmt.Errorf("%v: %w", commands, err)
	}
	e.command = commands.GetCommands()[0].GetCommandId()
	return e, e.machine.Stop()
}

// known returns all data of the API on it that only its own agents may change.
func (e *elsewhere) known(ctx context.Context) (string, error) {
	m, err := e.r.C.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: e.machine.ID})
	if err != nil {
		return "", err
	}
	out := []string{m.String()}
	inventory, err := e.r.C.Machines().GetInventory(ctx, &baremetalv1.GetInventoryRequest{MachineId: e.machine.ID})
	out = append(out, inventory.String(), fmt.Sprint(harness.HasReason(err, "INVENTORY_NOT_FOUND")))
	for _, one := range []struct {
		method  string
		request proto.Message
	}{
		{"OperationService/StreamOperationLogs", &baremetalv1.StreamOperationLogsRequest{OperationId: e.operation}},
		{"AdminService/ListBMCCertificates", &baremetalv1.ListBMCCertificatesRequest{}},
	} {
		text := ""
		if err := call(ctx, e.r.C.Client, service+one.method, one.request,
			func(m proto.Message) { text += fmt.Sprint(m) }); err != nil {
			return "", err
		}
		out = append(out, one.method+text)
	}
	return strings.Join(out, "\n"), nil
}

// reportElsewhere: a site's agent sends all reports of an agent, about a machine of another site.
func reportElsewhere(ctx context.Context, r *Rig) (Outcome, error) {
	s, err := newSegment(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	e, err := newElsewhere(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	hold(ctx, time.Second) // what its own agent has sent last is stored
	before, err := e.known(ctx)
	if err != nil {
		return Outcome{}, err
	}
	n, err := s.forge(ctx, e)
	for tries := 0; status.Code(err) == codes.Aborted && tries < 3; tries++ {
		// A silent session is ended while the machine of the other site works.
		if err := s.open(ctx); err != nil {
			return Outcome{}, err
		}
		n, err = s.forge(ctx, e)
	}
	if err != nil {
		return Outcome{}, err
	}
	_, err = s.fleet.SyncSite(ctx, &fleetv1.SyncSiteRequest{Bmcs: []*fleetv1.BMCObservation{{
		MachineId: e.machine.ID, Endpoint: "10.77.0.9", Reachable: true, PowerState: "off",
		CertificateSha256: strings.Repeat("ab", 32), SeenAt: timestamppb.Now(),
	}}})
	if err != nil {
		return Outcome{}, err
	}
	after, err := e.known(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if after != before {
		return breached("before: %s\nafter: %s", before, after), nil
	}
	return held("%d kinds of report were taken and dropped; nothing about the machine has changed", n+1), nil
}

// forge sends events about a machine of another site, and waits until they are acknowledged.
func (s *segment) forge(ctx context.Context, e *elsewhere) (int, error) {
	stream, err := s.fleet.Events(ctx)
	if err != nil {
		return 0, err
	}
	hello := &fleetv1.EventsHello{SessionId: s.session, Epoch: s.epoch, StateId: "state-1"}
	if err := stream.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: hello}}); err != nil {
		return 0, err
	}
	events := []*fleetv1.Event{
		{Body: &fleetv1.Event_Inventory{Inventory: &fleetv1.InventoryReport{MachineId: e.machine.ID, Hash: "forged",
			Document: []byte(`{"forged": true}`)}}},
		{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{OperationId: e.operation, Stream: "console",
			Data: []byte("forged\n")}}},
		{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{CommandId: e.command, Stream: "stdout", Data: []byte("forged\n")}}},
		{Body: &fleetv1.Event_Report{Report: &fleetv1.Report{MachineId: e.machine.ID, Kind: "drift",
			Fields: map[string]string{"diff": "forged"}}}},
		{Body: &fleetv1.Event_Progress{Progress: &fleetv1.ProgressReport{OperationId: e.operation, CommandId: e.command,
			Percent: 7, Message: "forged"}}},
	}
	for i, event := range events {
		event.Seq, event.Ts = uint64(i+1), timestamppb.Now()
		if err := stream.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Event{Event: event}}); err != nil {
			return 0, err
		}
	}
	for {
		ack, err := stream.Recv()
		if errors.Is(err, io.EOF) || err != nil {
			return 0, fmt.Errorf("events: %w", err)
		}
		if ack.GetAckedSeq() >= uint64(len(events)) {
			return len(events), nil
		}
	}
}

// credentialsElsewhere: a site's agent asks for everything that it gets for machines of its own.
func credentialsElsewhere(ctx context.Context, r *Rig) (Outcome, error) {
	s, err := newSegment(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	m := r.C.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
		Site: "elsewhere", BmcEndpoint: "10.0.0.1", BmcCredentialsRef: "rack", SshEndpoint: "10.0.0.2:22",
		SshCredentialsRef: "rack",
	}})
	_, err = r.C.Admin().SetBMCCredentials(ctx, &baremetalv1.SetBMCCredentialsRequest{
		CredentialsRef: "rack", Username: "root", Password: "secret", AllowedEndpoints: []string{"10.0.0.0/8"},
	})
	if err != nil {
		return Outcome{}, err
	}
	_, csr, err := newKey()
	if err != nil {
		return Outcome{}, err
	}
	id := m.GetMachineId()
	asked := map[string]error{
		"GetBMCCredentials": second(s.fleet.GetBMCCredentials(ctx,
			&fleetv1.GetBMCCredentialsRequest{MachineId: id, CredentialsRef: "rack"})),
		"GetSSHCredentials": second(s.fleet.GetSSHCredentials(ctx,
			&fleetv1.GetSSHCredentialsRequest{MachineId: id, CredentialsRef: "rack"})),
		"GetMAASRegion": second(s.fleet.GetMAASRegion(ctx, &fleetv1.GetMAASRegionRequest{MachineId: id, RegionRef: "r"})),
		"VouchInstaller": second(s.fleet.VouchInstaller(ctx,
			&fleetv1.VouchInstallerRequest{MachineId: id, OperationId: "op-x", BootToken: "x", Csr: csr})),
		"IssueIdentity": second(s.fleet.IssueIdentity(ctx, &fleetv1.IssueIdentityRequest{})),
	}
	for name, err := range asked {
		if err == nil {
			return breached("%s answers", name), nil
		}
	}
	// The document of the site names no machine of another.
	doc, err := s.fleet.SyncSite(ctx, &fleetv1.SyncSiteRequest{})
	if err != nil || strings.Contains(doc.String(), id) {
		return breached("the site's document: %v, %v", doc, err), nil
	}
	return held("%d calls refused; the site's document names no such machine", len(asked)), nil
}
