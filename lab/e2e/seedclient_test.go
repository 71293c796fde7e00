// A client as a stranger would write it: it is compiled against nothing of this tree but api/, and it runs the three
// examples of the customer API's design against a fresh controller with one site agent beside it. The test that starts
// those two is in examples_test.go.

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// seedClient is the stranger's program.
type seedClient struct {
	machines   baremetalv1.MachineServiceClient
	operations baremetalv1.OperationServiceClient
	printf     func(format string, args ...any)
}

type tokenCredentials string

func (t tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (tokenCredentials) RequireTransportSecurity() bool { return true }

func dialSeed(address, token string, rootPEM []byte) (*grpc.ClientConn, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(rootPEM) {
		return nil, errors.New("no certificate")
	}
	return grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})),
		grpc.WithPerRPCCredentials(tokenCredentials(token)))
}

// importMachines is `import N`.
func (c *seedClient) importMachines(ctx context.Context, n int) error {
	for i := 1; i <= n; i++ {
		_, err := c.machines.RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{
			MachineId: fmt.Sprintf("machine-%d", i), Labels: map[string]string{"env": "test"},
			Spec: &baremetalv1.MachineSpec{
				Provider: "fake", Site: "example", MacAddresses: []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}, Rack: "r42",
			},
		}})
		if err != nil {
			return fmt.Errorf("register machine-%d: %w", i, err)
		}
	}
	list, err := c.machines.ListMachines(ctx, &baremetalv1.ListMachinesRequest{})
	if err != nil {
		return err
	}
	if len(list.GetMachines()) != n {
		return fmt.Errorf("%d machines, want %d", len(list.GetMachines()), n)
	}
	for _, m := range list.GetMachines() {
		if m.GetStatus().GetPhase() != baremetalv1.MachineStatus_FACTORY_READY || m.GetStatus().GetEffectiveState() != baremetalv1.MachineStatus_NEW {
			return fmt.Errorf("a new machine is %v", m.GetStatus())
		}
	}
	return nil
}

// follow watches one operation to its end, events and logs at the same time, as the live view does.
func (c *seedClient) follow(ctx context.Context, op *baremetalv1.Operation) (*baremetalv1.Operation, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs, err := c.operations.StreamOperationLogs(ctx, &baremetalv1.StreamOperationLogsRequest{OperationId: op.GetOperationId()})
	if err != nil {
		return nil, err
	}
	watch, err := c.operations.WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{
		Filter: "operation_id=" + op.GetOperationId(), FromBeginning: true,
	})
	if err != nil {
		return nil, err
	}
	lines := make(chan int, 1)
	go func() {
		n := 0
		for {
			chunk, err := logs.Recv()
			if err != nil {
				lines <- n
				return
			}
			if chunk.GetOperationId() == op.GetOperationId() && chunk.GetRunId() == op.GetOperationId() {
				n++
			}
		}
	}()
	seen := []baremetalv1.Operation_Phase{}
	for {
		e, err := watch.Recv()
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		phase := e.GetSnapshot().GetPhase()
		if len(seen) == 0 || seen[len(seen)-1] != phase {
			seen = append(seen, phase)
		}
		if phase >= baremetalv1.Operation_SUCCEEDED {
			c.printf("%s %s: %v, %d log lines", e.GetSnapshot().GetMachineId(), e.GetSnapshot().GetType(), seen, <-lines)
			return e.GetSnapshot(), nil
		}
	}
}

func (c *seedClient) machine(ctx context.Context, id string) (*baremetalv1.MachineStatus, map[string]bool, error) {
	m, err := c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	if err != nil {
		return nil, nil, err
	}
	conditions := map[string]bool{}
	for _, c := range m.GetStatus().GetConditions() {
		conditions[c.GetType()] = c.GetStatus()
	}
	return m.GetStatus(), conditions, nil
}

// example1 reimages a machine: enter maintenance, reimage, exit maintenance.
func (c *seedClient) example1(ctx context.Context) error {
	_, err := c.machines.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: "machine-1", RequestId: "early", ImageRef: "ubuntu-2204"})
	if status.Code(err) != codes.FailedPrecondition {
		return fmt.Errorf("reimage outside maintenance: %w", err)
	}
	enter, err := c.machines.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: "machine-1", RequestId: "enter"})
	if err != nil {
		return err
	}
	if err := c.succeeds(ctx, enter); err != nil {
		return err
	}
	reimage, err := c.machines.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: "machine-1", RequestId: "deploy-v2.1", ImageRef: "ubuntu-2204"})
	if err != nil {
		return err
	}
	if err := c.succeeds(ctx, reimage); err != nil {
		return err
	}
	again, err := c.machines.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: "machine-1", RequestId: "deploy-v2.1", ImageRef: "ubuntu-2204"})
	if err != nil || again.GetOperationId() != reimage.GetOperationId() || again.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		return fmt.Errorf("the same request again is %v: %w", again, err)
	}
	exit, err := c.machines.ExitMaintenance(ctx, &baremetalv1.ExitMaintenanceRequest{MachineId: "machine-1", RequestId: "exit"})
	if err != nil {
		return err
	}
	if err := c.succeeds(ctx, exit); err != nil {
		return err
	}
	s, conditions, err := c.machine(ctx, "machine-1")
	if err != nil {
		return err
	}
	if s.GetPhase() != baremetalv1.MachineStatus_READY || s.GetEffectiveState() != baremetalv1.MachineStatus_IDLE || !conditions["Provisioned"] || s.GetActiveOperationId() != "" {
		return fmt.Errorf("machine-1 is %v", s)
	}
	return nil
}

func (c *seedClient) succeeds(ctx context.Context, op *baremetalv1.Operation) error {
	got, err := c.follow(ctx, op)
	if err != nil {
		return err
	}
	if got.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		return fmt.Errorf("%s ended as %v", got.GetType(), got)
	}
	return nil
}

// example2 handles a failed operation: the machine asks for attention, the retry heals it.
func (c *seedClient) example2(ctx context.Context) error {
	enter, err := c.machines.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: "machine-2", RequestId: "enter"})
	if err != nil {
		return err
	}
	if err := c.succeeds(ctx, enter); err != nil {
		return err
	}
	first, err := c.machines.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: "machine-2", RequestId: "first", ImageRef: "ubuntu-2204"})
	if err != nil {
		return err
	}
	got, err := c.follow(ctx, first)
	if err != nil {
		return err
	}
	if got.GetPhase() != baremetalv1.Operation_FAILED || got.GetError().GetCode() == "" || got.GetError().GetMessage() == "" {
		return fmt.Errorf("the first reimage ended as %v", got)
	}
	s, conditions, err := c.machine(ctx, "machine-2")
	if err != nil {
		return err
	}
	if s.GetPhase() != baremetalv1.MachineStatus_MAINTENANCE || s.GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION || !conditions["NeedsIntervention"] {
		return fmt.Errorf("after the failure machine-2 is %v", s)
	}
	retry, err := c.machines.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: "machine-2", RequestId: "retry-001", ImageRef: "ubuntu-2204"})
	if err != nil {
		return err
	}
	if retry.GetOperationId() == first.GetOperationId() {
		return errors.New("another request id gave the same operation")
	}
	if err := c.succeeds(ctx, retry); err != nil {
		return err
	}
	s, conditions, err = c.machine(ctx, "machine-2")
	if err != nil {
		return err
	}
	if s.GetEffectiveState() != baremetalv1.MachineStatus_MAINTENANCE_IDLE || conditions["NeedsIntervention"] || !conditions["Provisioned"] {
		return fmt.Errorf("after the retry machine-2 is %v", s)
	}
	return nil
}

// example3 watches the whole fleet while two machines work.
func (c *seedClient) example3(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	watch, err := c.operations.WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{})
	if err != nil {
		return err
	}
	if _, err := watch.Header(); err != nil {
		return err
	}
	enter, err := c.machines.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: "machine-3", RequestId: "enter"})
	if err != nil {
		return err
	}
	reboot, err := c.machines.RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: "machine-1", RequestId: "watched"})
	if err != nil {
		return err
	}
	want := map[string][]baremetalv1.Operation_Phase{enter.GetOperationId(): nil, reboot.GetOperationId(): nil}
	for done := 0; done < len(want); {
		e, err := watch.Recv()
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		s := e.GetSnapshot()
		phases, ours := want[s.GetOperationId()]
		if !ours || len(phases) > 0 && phases[len(phases)-1] == s.GetPhase() {
			continue
		}
		c.printf("[%s] %s  %s  %s  %s", e.GetTs().AsTime().Format(time.TimeOnly), s.GetMachineId(), s.GetOperationId(), s.GetType(), s.GetPhase())
		want[s.GetOperationId()] = append(phases, s.GetPhase())
		if s.GetPhase() >= baremetalv1.Operation_SUCCEEDED {
			done++
		}
	}
	for id, phases := range want {
		if fmt.Sprint(phases) != "[PENDING RUNNING SUCCEEDED]" {
			return fmt.Errorf("operation %s went through %v", id, phases)
		}
	}
	return nil
}
