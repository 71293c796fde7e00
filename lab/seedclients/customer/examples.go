package customer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Import is `import N`: it registers N machines and finds them in the list.
func (c *Client) Import(ctx context.Context, n int) error {
	for i := 1; i <= n; i++ {
		_, err := c.RegisterMachine(ctx, &Machine{
			MachineId: fmt.Sprintf("machine-%d", i), Labels: map[string]string{"env": "prod", "rack": "r42"},
			Spec: &MachineSpec{SshEndpoint: "10.20.30.40:22",
				MacAddresses: []string{fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8, i&255)}},
		})
		if err != nil {
			return fmt.Errorf("register machine-%d: %w", i, err)
		}
	}
	all, err := c.ListMachines(ctx)
	if err != nil {
		return err
	}
	if len(all) != n {
		return fmt.Errorf("the list has %d machines of %d", len(all), n)
	}
	for _, m := range all {
		if m.GetStatus().GetPhase() != MachineStatus_FACTORY_READY || m.GetStatus().GetEffectiveState() != MachineStatus_NEW {
			return fmt.Errorf("a new machine is %v", m.GetStatus())
		}
	}
	return nil
}

// Relabel is decision D1: an update with labels alone keeps the spec, and a client's values of the status are ignored.
func (c *Client) Relabel(ctx context.Context, id string) error {
	before, err := c.GetMachine(ctx, id)
	if err != nil {
		return err
	}
	after, err := c.UpdateMachine(ctx, &Machine{
		MachineId: id, Labels: map[string]string{"env": "test"},
		Status: &MachineStatus{Phase: MachineStatus_READY, ActiveOperationId: "op-none"},
	})
	if err != nil {
		return err
	}
	if after.GetLabels()["env"] != "test" || after.GetSpec().String() != before.GetSpec().String() ||
		after.GetStatus().String() != before.GetStatus().String() {
		return fmt.Errorf("%v became %v", before, after)
	}
	return nil
}

// Finish awaits an operation that must succeed.
func (c *Client) Finish(ctx context.Context, op *Operation, err error) error {
	if err != nil {
		return err
	}
	got, _, err := c.Await(ctx, op)
	if err == nil && got.GetPhase() != Operation_SUCCEEDED {
		err = fmt.Errorf("%v ended as %v", got.GetType(), got)
	}
	return err
}

func (c *Client) enter(ctx context.Context, id string) error {
	op, err := c.EnterMaintenance(ctx, id, "enter")
	return c.Finish(ctx, op, err)
}

// Example1 reimages a machine: enter maintenance, reimage, reboot to see that it comes back, exit.
func (c *Client) Example1(ctx context.Context, id string) error {
	if err := c.enter(ctx, id); err != nil {
		return err
	}
	first, err := c.Reimage(ctx, id, "deploy-v2.1", "ubuntu-2204")
	if err := c.Finish(ctx, first, err); err != nil {
		return err
	}
	again, err := c.Reimage(ctx, id, "deploy-v2.1", "ubuntu-2204")
	if err != nil || again.GetOperationId() != first.GetOperationId() || again.GetPhase() != Operation_SUCCEEDED ||
		again.GetParams()["image_ref"] != "ubuntu-2204" {
		return fmt.Errorf("the same request again is %v: %w", again, err)
	}
	reboot, err := c.Reboot(ctx, id, "verify")
	if err := c.Finish(ctx, reboot, err); err != nil {
		return err
	}
	exit, err := c.ExitMaintenance(ctx, id, "exit")
	if err := c.Finish(ctx, exit, err); err != nil {
		return err
	}
	m, err := c.GetMachine(ctx, id)
	if err != nil {
		return err
	}
	s := m.GetStatus()
	if s.GetPhase() != MachineStatus_READY || s.GetEffectiveState() != MachineStatus_IDLE || !m.Holds("Provisioned") ||
		s.GetActiveOperationId() != "" {
		return fmt.Errorf("after the example %s is %v", id, s)
	}
	return nil
}

// Holds reports whether a condition of the machine is true.
func (m *Machine) Holds(condition string) bool {
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == condition {
			return c.GetStatus()
		}
	}
	return false
}

// Example2 handles a failed operation. The first reimage must fail; its plain retry under another request id heals the
// machine.
func (c *Client) Example2(ctx context.Context, id string) error {
	if err := c.enter(ctx, id); err != nil {
		return err
	}
	first, err := c.Reimage(ctx, id, "first", "ubuntu-2204")
	if err != nil {
		return err
	}
	failed, _, err := c.Await(ctx, first)
	if err != nil {
		return err
	}
	if failed.GetPhase() != Operation_FAILED || failed.GetError().GetCode() == "" || failed.GetError().GetMessage() == "" {
		return fmt.Errorf("the first reimage ended as %v", failed)
	}
	m, err := c.GetMachine(ctx, id)
	if err != nil {
		return err
	}
	if m.GetStatus().GetPhase() != MachineStatus_MAINTENANCE ||
		m.GetStatus().GetEffectiveState() != MachineStatus_ATTENTION || !m.Holds("NeedsIntervention") {
		return fmt.Errorf("after the failure %s is %v", id, m.GetStatus())
	}
	retry, err := c.Reimage(ctx, id, "retry-001", "ubuntu-2204")
	if err == nil && retry.GetOperationId() == first.GetOperationId() {
		return errors.New("another request id gave the same operation")
	}
	if err := c.Finish(ctx, retry, err); err != nil {
		return err
	}
	if m, err = c.GetMachine(ctx, id); err != nil {
		return err
	}
	if m.GetStatus().GetEffectiveState() != MachineStatus_IN_MAINTENANCE || m.Holds("NeedsIntervention") ||
		!m.Holds("Provisioned") {
		return fmt.Errorf("after the retry %s is %v", id, m.GetStatus())
	}
	return nil
}

// Example3 watches the fleet while two machines work.
func (c *Client) Example3(ctx context.Context, idle, ready string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	events, err := c.Watch(ctx, "")
	if err != nil {
		return err
	}
	if _, err := events.Header(); err != nil {
		return fmt.Errorf("begin to watch: %w", err)
	}
	want := map[string][]Operation_Phase{}
	enter, err := c.EnterMaintenance(ctx, idle, "watched")
	if err != nil {
		return err
	}
	reboot, err := c.Reboot(ctx, ready, "watched")
	if err != nil {
		return err
	}
	want[enter.GetOperationId()], want[reboot.GetOperationId()] = nil, nil
	for done := 0; done < len(want); {
		e, err := events.Recv()
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		s := e.GetSnapshot()
		phases, ours := want[s.GetOperationId()]
		if !ours || len(phases) > 0 && phases[len(phases)-1] == s.GetPhase() {
			continue
		}
		want[s.GetOperationId()] = append(phases, s.GetPhase())
		if s.GetPhase() >= Operation_SUCCEEDED {
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

// Errors goes through the table of codes. The machine is in phase READY, and operation has ended.
func (c *Client) Errors(ctx context.Context, ready, ended string) error {
	for _, e := range []struct {
		what string
		call func() error
		want codes.Code
	}{
		{"unknown machine", func() error { _, err := c.GetMachine(ctx, "nonexistent"); return err }, codes.NotFound},
		{"reimage when READY", func() error { _, err := c.Reimage(ctx, ready, "early", "ubuntu-2204"); return err },
			codes.FailedPrecondition},
		{"cancel of what has ended", func() error { _, err := c.Cancel(ctx, ended); return err }, codes.FailedPrecondition},
		{"no request_id", func() error { _, err := c.Reimage(ctx, ready, "", "ubuntu-2204"); return err },
			codes.InvalidArgument},
	} {
		if err := e.call(); status.Code(err) != e.want {
			return fmt.Errorf("%s is %w, not %v", e.what, err, e.want)
		}
	}
	return nil
}
