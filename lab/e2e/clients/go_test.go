package clients

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// site is a controller with REST, one simulated machine with an agent, and what a client logs in with.
type site struct {
	*harness.ControllerProcess
	machine   string
	tokenFile string
	// rest leads to the REST listener, over restarts; nil where it is unused.
	rest *harness.Relay
}

func start(t *testing.T) site {
	t.Helper()
	s := site{ControllerProcess: harness.NewControllerProcessWith(t, ""), machine: "m-1",
		tokenFile: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(s.tokenFile, []byte(s.Token()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Start("")
	s.NewMachine(t, harness.MachineOptions{ID: s.machine}).WaitConnected()
	for _, args := range [][]string{{"enter-maintenance", s.machine}, {"exit-maintenance", s.machine}} {
		if code, out := s.Ingot(args...); code != 0 {
			t.Fatalf("ingot %v: %d: %s", args, code, out)
		}
	}
	return s
}

func (s site) restart() {
	s.Process.Kill()
	s.Start("")
	if s.rest != nil {
		s.rest.Retarget("tcp", s.Addresses().REST)
	}
}

// TestGoClient uses the client as a program does. It starts work once, waits for it over a restart of the controller,
// and reads why calls are refused. It watches machines, and keeps a copy of the fleet.
func TestGoClient(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn, err := client.Dial(client.Config{Server: s.Front.Address(), CAFile: s.CAFile(), TokenFile: s.tokenFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*rig.Soon)
	t.Cleanup(cancel)
	machines := baremetalv1.NewMachineServiceClient(conn)

	reboot := &baremetalv1.RebootMachineRequest{MachineId: s.machine, RequestId: client.RequestID("go", "kernel 6.1")}
	first := harness.Must(t, machines.RebootMachine, reboot)
	if again := harness.Must(t, machines.RebootMachine, reboot); again.GetOperationId() != first.GetOperationId() {
		t.Errorf("one request is %s and %s", first.GetOperationId(), again.GetOperationId())
	}
	var seqs []int64
	done, err := client.Wait(ctx, conn, first.GetOperationId(), func(e *baremetalv1.OperationEvent) {
		if seqs = append(seqs, e.GetSeq()); len(seqs) == 1 {
			s.restart()
		}
	})
	if err != nil || done.GetEvidence()["boot_id_after"] == "" {
		t.Fatalf("the reboot ended as %v: %v", done, err)
	}
	for i, seq := range seqs {
		if seq != int64(i)+1 {
			t.Fatalf("the events were %v", seqs)
		}
	}
	_, err = machines.ReimageMachine(
		ctx,
		&baremetalv1.ReimageMachineRequest{MachineId: s.machine, RequestId: "go-reimage"},
	)
	if client.Reason(err) != baremetalv1.Reason_WRONG_PHASE || client.Transient(err) {
		t.Errorf("a reimage in service: %v", err)
	}
	canceled(ctx, t, s, machines)
	watched(ctx, t, s, conn)
	copied(ctx, t, s, conn)
}

// canceled: an operation that has ended without success is an error that carries it.
func canceled(ctx context.Context, t *testing.T, s site, machines baremetalv1.MachineServiceClient) {
	t.Helper()
	s.Register(&baremetalv1.Machine{MachineId: "lonely", Spec: &baremetalv1.MachineSpec{Provider: "fake"}})
	conn := s.Conn()
	in := harness.Must(t, machines.EnterMaintenance,
		&baremetalv1.EnterMaintenanceRequest{MachineId: "lonely", RequestId: "in"})
	if _, err := client.Wait(ctx, conn, in.GetOperationId(), nil); err != nil {
		t.Fatal(err)
	}
	o := harness.Must(
		t,
		machines.RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: "lonely", RequestId: "reboot"},
	)
	harness.Must(t, machines.CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: o.GetOperationId()})
	ended, err := client.Wait(ctx, conn, o.GetOperationId(), nil)
	var failed *client.OperationError
	if !errors.As(err, &failed) || !client.Ended(ended) || client.Reason(err) == 0 {
		t.Errorf("the canceled operation: %v, %v", ended, err)
	}
}

var errEnough = errors.New("enough was seen")

// watched: what matches, then what changes.
func watched(ctx context.Context, t *testing.T, s site, conn grpc.ClientConnInterface) {
	t.Helper()
	inRack := func(id string) {
		s.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Rack: "watched", Provider: "fake"}})
	}
	inRack("w-1")
	var kinds []string
	watch := client.Watch{Conn: conn, Filter: "rack=watched"}
	err := watch.Run(ctx, func(e *baremetalv1.MachineEvent) error {
		kinds = append(kinds, e.GetKind().String()+" "+e.GetMachine().GetMachineId())
		switch {
		case e.GetKind() == baremetalv1.MachineEvent_BOOKMARK && len(kinds) == 2:
			inRack("w-2")
		case e.GetMachine().GetMachineId() == "w-2":
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || kinds[0] != "CURRENT w-1" || kinds[len(kinds)-1] != "CHANGED w-2" {
		t.Errorf("the watch gave %v and ended with %v", kinds, err)
	}
}

// copied: each run of a program goes on where the one before ended, and learns of removed machines.
func copied(ctx context.Context, t *testing.T, s site, conn grpc.ClientConnInterface) {
	t.Helper()
	cursor, racks, walks := filepath.Join(t.TempDir(), "cursor"), map[string]string{}, 0
	run := func() (seen []string) {
		r := client.Reconciler{Conn: conn, CursorFile: cursor,
			Apply: func(_ context.Context, m *baremetalv1.Machine) error {
				seen = append(seen, m.GetMachineId())
				racks[m.GetMachineId()] = m.GetSpec().GetRack()
				if m.GetDeletedAt() != nil {
					delete(racks, m.GetMachineId())
				}
				return nil
			},
			Walked: func(_ context.Context, ids map[string]bool) error {
				if walks++; !ids["c-1"] || !ids["c-2"] {
					t.Errorf("the walk went over %v", ids)
				}
				return nil
			},
		}
		if err := r.Pass(ctx); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	for _, id := range []string{"c-1", "c-2"} {
		s.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Rack: "r1", Provider: "fake"}})
	}
	run()
	if racks["c-1"] != "r1" {
		t.Errorf("after the walk the copy is %v", racks)
	}
	s.Register(&baremetalv1.Machine{MachineId: "c-1", Spec: &baremetalv1.MachineSpec{Rack: "r2"}})
	harness.Must(t, s.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: "c-2"})
	seen := run()
	if racks["c-1"] != "r2" || racks["c-2"] != "" || !slices.Contains(seen, "c-2") || walks != 1 {
		t.Errorf("the second run of %d walks saw %v, and the copy is %v", walks, seen, racks)
	}
}
