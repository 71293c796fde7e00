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

// Register makes n machines, named prefix-000000 and on and indexed from first, and a bootstrap token for each that has no
// identity in dir.
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
		t, err := baremetalv1.NewAdminServiceClient(conn).IssueBootstrapToken(ctx, &baremetalv1.IssueBootstrapTokenRequest{MachineId: s.Name})
		s.Bundle = t.GetBundle()
		return err
	})
	if err != nil {
		return s, fmt.Errorf("issue a token for %s: %w", s.Name, err)
	}
	return s, nil
}

// patiently repeats a call for as long as its error says that another attempt may succeed, a minute at most.
func patiently(ctx context.Context, call func() error) error {
	for until := time.Now().Add(time.Minute); ; {
		err := call()
		if err == nil || !failure.From(err).Retryable || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		wait(ctx, time.Second)
	}
}

// Maintain puts machines into the phase MAINTENANCE, in which they may be worked on, where they are not in it.
func Maintain(ctx context.Context, conn *grpc.ClientConn, machines []string) error {
	client := baremetalv1.NewMachineServiceClient(conn)
	return Parallel(ctx, len(machines), func(ctx context.Context, i int) error {
		there, _, err := maintained(ctx, client, machines[i])
		if there || err != nil {
			return err
		}
		_, err = client.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: machines[i], RequestId: ids.New(ids.Session)})
		if err != nil {
			return fmt.Errorf("enter maintenance: %w", err)
		}
		return untilMaintained(ctx, client, machines[i])
	})
}

func untilMaintained(ctx context.Context, client baremetalv1.MachineServiceClient, machine string) error {
	for {
		there, idle, err := maintained(ctx, client, machine)
		if there && idle || err != nil {
			return err
		}
		wait(ctx, 20*time.Millisecond)
	}
}

// maintained says whether a machine is in the phase, and whether nothing works on it.
func maintained(ctx context.Context, client baremetalv1.MachineServiceClient, machine string) (there, idle bool, err error) {
	m, err := client.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: machine})
	if err != nil {
		return false, false, fmt.Errorf("enter maintenance: %w", err)
	}
	return m.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE, m.GetStatus().GetActiveOperationId() == "", nil
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
