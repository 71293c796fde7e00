package fleet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
)

// Width is how many calls of the preparations go on at once.
const Width = 16

// Register makes n machines, named prefix-000000 and on and indexed from first, and a bootstrap token for each that has
// no identity in dir.
func Register(ctx context.Context, conn *grpc.ClientConn, dir, prefix string, first, n int) ([]Spec, error) {
	specs := make([]Spec, n)
	err := Parallel(ctx, n, func(ctx context.Context, i int) (err error) {
		specs[i], err = RegisterOne(ctx, conn, dir, Spec{Index: first + i, Name: fmt.Sprintf("%s-%06d", prefix, i)})
		return err
	})
	return specs, err
}

// RegisterOne is Register for one machine.
func RegisterOne(ctx context.Context, conn *grpc.ClientConn, dir string, s Spec) (Spec, error) {
	if enrolled, err := state.Dir(filepath.Join(dir, s.Name)).Enrolled(); enrolled || err != nil {
		return s, err
	}
	err := patiently(ctx, func() error {
		_, err := baremetalv1.NewMachineServiceClient(conn).RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{
			Machine: &baremetalv1.Machine{MachineId: s.Name},
		})
		return err
	})
	if err != nil {
		return s, fmt.Errorf("register %s: %w", s.Name, err)
	}
	err = patiently(ctx, func() error {
		t, err := baremetalv1.NewAdminServiceClient(conn).IssueBootstrapToken(ctx,
			&baremetalv1.IssueBootstrapTokenRequest{MachineId: s.Name})
		s.Bundle = t.GetBundle()
		return err
	})
	if err != nil {
		return s, fmt.Errorf("issue a token for %s: %w", s.Name, err)
	}
	return s, nil
}

// RegisterBehind makes n machines of the provider fake, named site-000000 and on, that a site agent works on.
func RegisterBehind(ctx context.Context, conn *grpc.ClientConn, site string, n int) ([]string, error) {
	names := make([]string, n)
	err := Parallel(ctx, n, func(ctx context.Context, i int) error {
		names[i] = fmt.Sprintf("%s-%06d", site, i)
		err := patiently(ctx, func() error {
			_, err := baremetalv1.NewMachineServiceClient(conn).RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{
				Machine: &baremetalv1.Machine{MachineId: names[i],
					Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: site}},
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("register %s: %w", names[i], err)
		}
		return nil
	})
	return names, err
}

// patiently repeats a call for as long as its error is retryable, a minute at most.
func patiently(ctx context.Context, call func() error) error {
	for until := time.Now().Add(time.Minute); ; {
		err := call()
		if err == nil || !failure.From(err).Retryable || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		wait(ctx, time.Second)
	}
}

// Maintain puts machines into the phase MAINTENANCE, in which they may be worked on, where they are not in it. A
// command whose outcome a fleet that was interrupted took with it is settled: simulated machines keep no trace of it.
func Maintain(ctx context.Context, conn *grpc.ClientConn, machines []string) error {
	client := baremetalv1.NewMachineServiceClient(conn)
	return Parallel(ctx, len(machines), func(ctx context.Context, i int) error {
		m, err := client.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: machines[i]})
		if err == nil && !maintained(m) {
			_, err = client.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: machines[i],
				RequestId: ids.New(ids.Session)})
			for err == nil && !(maintained(m) && m.GetStatus().GetActiveOperationId() == "") {
				wait(ctx, 20*time.Millisecond)
				m, err = client.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: machines[i]})
			}
		}
		if command := m.GetStatus().GetUnresolvedCommandId(); err == nil && command != "" {
			_, err = baremetalv1.NewAdminServiceClient(conn).SettleCommand(ctx, &baremetalv1.SettleCommandRequest{
				MachineId: machines[i], CommandId: command, Verdict: "did_not_happen", Comment: "the simulated machine began anew",
			})
		}
		if err != nil {
			return fmt.Errorf("bring %s to maintenance: %w", machines[i], err)
		}
		return nil
	})
}

func maintained(m *baremetalv1.Machine) bool {
	return m.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE
}

// Parallel runs fn for 0 to n-1, a few at a time.
func Parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	next := make(chan int)
	group, _ := task.New(ctx)
	for range min(Width, n) {
		group.Go("worker", func(ctx context.Context) error {
			for i := range next {
				if err := fn(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go("feed", func(ctx context.Context) error {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
}
