package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

// metalParts are the programs and what machines boot from. They are made once, in sharedDir.
type metalParts struct {
	controller, agent string
	files             metal.ImageFiles
}

var sharedMetal = sync.OnceValues(buildMetal)

// envPrograms names a directory with programs to test instead of those of this tree.
const envPrograms = "INGOT_TEST_PROGRAMS"

// buildMetal builds the programs as they are shipped: static, without the race detector.
func buildMetal() (metalParts, error) {
	if dir := os.Getenv(envPrograms); dir != "" {
		return partsOf(dir)
	}
	dir := filepath.Join(sharedDir, "metal")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return metalParts{}, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags=-s -w -buildid=",
		"-o", dir,
		"../cmd/ingot-controller", "../cmd/ingot-agent", "../cmd/ingot-image")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return metalParts{}, fmt.Errorf("build programs: %w: %s", err, out)
	}
	return partsOf(dir)
}

func partsOf(dir string) (metalParts, error) {
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		return metalParts{}, err
	}
	p := metalParts{controller: filepath.Join(dir, "ingot-controller"), agent: filepath.Join(dir, "ingot-agent")}
	p.files, err = metal.BuildImages(context.Background(), filepath.Join(dir, "ingot-image"), p.agent, cache)
	return p, err
}

// site is a lab of package metal under test.
type site struct {
	*testing.T
	ctx context.Context
	lab *metal.Lab
	api *metal.Client
	dir string
}

// cycle is a generous limit for a whole cycle: emulation shares its processors with whatever else runs here.
const cycle = 6 * time.Minute

// asRoot is false where the test has been run by another process, as the root of a user namespace.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	network.AsRoot(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as the root of a user namespace: %v\n%s", err, out)
	}
	return false
}

// newSite has no machine yet.
func newSite(t *testing.T, change func(*metal.Config)) *site {
	t.Helper()
	if err := errors.Join(vm.Available(vm.BIOS), vm.Available(vm.UEFI)); err != nil {
		t.Fatalf("this test needs virtual machines: %v", err)
	}
	p, err := sharedMetal()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*cycle)
	t.Cleanup(cancel)
	cfg := metal.Config{Dir: testkit.TempDir(t), Controller: p.controller, Agent: p.agent, Log: testkit.Logger(t)}
	if change != nil {
		change(&cfg)
	}
	l, err := metal.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, ctx: ctx, lab: l, api: l.Client(), dir: cfg.Dir}
	t.Cleanup(func() { s.end() })
	if err := l.AddImages(ctx, p.files); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) end() {
	if err := s.lab.Close(); err != nil {
		s.Error(err)
	}
	if !s.Failed() {
		return
	}
	if logs, err := s.lab.Logs(); err == nil {
		for name, text := range logs {
			s.Logf("%s:\n%s", name, withoutPolls(text))
		}
	}
	for _, m := range s.lab.Machines() {
		if said, err := m.SerialLog(); err == nil {
			s.Logf("console of %s:\n%s", m.Name(), said)
		}
	}
}

// withoutPolls leaves out what a site agent does all the time.
func withoutPolls(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "/SyncSite code=") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// machine adds one, powered off and with an empty disk.
func (s *site) machine(cfg metal.MachineConfig) *metal.Machine {
	s.Helper()
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("metal-%d", len(s.lab.Machines())+1)
	}
	m, err := s.lab.AddMachine(s.ctx, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return m
}

func (s *site) maintain(name string) {
	s.Helper()
	op, err := s.api.Machines.EnterMaintenance(s.ctx, &pb.EnterMaintenanceRequest{MachineId: name, RequestId: "maintain"})
	s.succeeded(s.ended(op, err))
}

// reimage begins to write the tiny image.
func (s *site) reimage(name, request string) *pb.Operation {
	s.Helper()
	return s.reimageBy(name, request, "")
}

func (s *site) reimageBy(name, request, path string) *pb.Operation {
	s.Helper()
	op, err := s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{
		MachineId: name, RequestId: request, ImageRef: metal.TinyRef, Path: path,
	})
	if err != nil {
		s.Fatal(err)
	}
	return op
}

// ended waits for the operation's end. It rides out a controller that is away.
func (s *site) ended(op *pb.Operation, err error) *pb.Operation {
	s.Helper()
	return s.await(op, err, "has ended", func(op *pb.Operation) bool { return op.GetFinishedAt() != nil })
}

// await waits until ok is true of the operation.
func (s *site) await(op *pb.Operation, err error, what string, ok func(*pb.Operation) bool) *pb.Operation {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	id := op.GetOperationId()
	testkit.Eventually(s.T, cycle, func() bool {
		now, err := s.api.Operations.GetOperation(s.ctx, &pb.GetOperationRequest{OperationId: id})
		if code := status.Code(err); code == codes.Unavailable || code == codes.Canceled {
			return false
		}
		if err != nil {
			s.Fatal(err)
		}
		op = now
		return ok(op) || op.GetFinishedAt() != nil
	}, "operation never %s", what)
	if !ok(op) {
		s.Fatalf("operation ended %s (%v) before it %s", op.GetPhase(), op.GetError(), what)
	}
	return op
}

func (s *site) succeeded(op *pb.Operation) {
	s.Helper()
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		s.Fatalf("%s of %s ended %s: %v", op.GetType(), op.GetMachineId(), op.GetPhase(), op.GetError())
	}
}

func (s *site) get(name string) *pb.Machine {
	s.Helper()
	m, err := s.api.Machines.GetMachine(s.ctx, &pb.GetMachineRequest{MachineId: name})
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// commands are those of an operation, in order.
func (s *site) commands(op *pb.Operation) []*pb.Command {
	s.Helper()
	list, err := s.api.Admin.ListCommands(s.ctx, &pb.ListCommandsRequest{OperationId: op.GetOperationId()})
	if err != nil {
		s.Fatal(err)
	}
	return list.GetCommands()
}

// stages logs the times of the stages of a finished operation.
func (s *site) stages(op *pb.Operation) {
	s.Helper()
	stages, err := s.lab.Stages(s.ctx, op)
	if err != nil {
		s.Fatal(err)
	}
	var b strings.Builder
	metal.PrintStages(&b, op.GetCreatedAt().AsTime(), stages)
	s.Logf("%s in %.1f s\n%s", op.GetType(), op.GetFinishedAt().AsTime().Sub(op.GetCreatedAt().AsTime()).Seconds(),
		b.String())
}

// logged counts the lines of an operation's log that contain text.
func (s *site) logged(op *pb.Operation, text string) int {
	s.Helper()
	chunks, err := s.api.LogOf(s.ctx, op)
	if code := status.Code(errors.Unwrap(err)); code == codes.Unavailable || code == codes.Canceled {
		return 0
	}
	if err != nil {
		s.Fatal(err)
	}
	n := 0
	for _, c := range chunks {
		n += strings.Count(string(c.GetData()), text)
	}
	return n
}

// until waits for a line in the operation's log, and fails when the operation ends without it.
func (s *site) until(op *pb.Operation, text string) {
	s.Helper()
	s.await(op, nil, "says "+text, func(op *pb.Operation) bool { return s.logged(op, text) > 0 })
}

// holdsOnePass: no command has begun to write twice.
func (s *site) holdsOnePass(op *pb.Operation) {
	s.Helper()
	granted := 0
	for _, c := range s.commands(op) {
		if c.GetKind() == "repave" && c.GetGrantedAt() != nil {
			granted++
		}
	}
	if n := s.logged(op, "stage: write"); n > granted {
		s.Errorf("%d writes began under %d grants", n, granted)
	}
}

// slow, in bytes a second, leaves a test half a minute in the middle of a write.
const slow = 1 << 20

// slowMachine is one with a BIOS whose disk takes its time.
func (s *site) slowMachine() *metal.Machine {
	s.Helper()
	return s.machine(metal.MachineConfig{
		Firmware: vm.BIOS, BMC: metal.Redfish, Disks: []chassis.Disk{{Serial: "slow-d0", Bytes: 2 << 30, WriteLimit: slow}},
	})
}
