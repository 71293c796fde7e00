package lab_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	_ "github.com/ingot-metal/ingot/controller/store/storetest" // registers the schema of test databases
	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/vm"
)

// patience is generous: emulation shares its processors with whatever else runs here.
const patience = 3 * time.Minute

// hostFromGuest is the host's loopback as guests on QEMU's user network see it.
const hostFromGuest = "10.0.2.2"

// parts are what all machines boot from. They are made once, in sharedDir.
type parts struct {
	kernel debian.Kernel
	initrd string
}

var (
	sharedDir   string
	sharedParts = sync.OnceValues(buildParts)
)

func TestMain(m *testing.M) {
	bmc.MainIfControl()
	var err error
	if sharedDir, err = os.MkdirTemp("", "ingot-lab-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	exit := testkit.Run(m)
	if err := os.RemoveAll(sharedDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		exit = 1
	}
	os.Exit(exit)
}

// buildParts builds the agent as it is shipped: static, without the race detector.
func buildParts() (parts, error) {
	if dir := os.Getenv(envPrograms); dir != "" {
		return partsWith(filepath.Join(dir, "ingot-agent"))
	}
	binary := filepath.Join(sharedDir, "ingot-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags=-s -w -buildid=",
		"-o", binary, "../cmd/ingot-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return parts{}, fmt.Errorf("build agent: %w: %s", err, out)
	}
	return partsWith(binary)
}

func partsWith(agent string) (parts, error) {
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		return parts{}, err
	}
	k, err := debian.FindKernel(context.Background(), cache)
	if err != nil {
		return parts{}, err
	}
	initrd := filepath.Join(sharedDir, "initrd")
	return parts{k, initrd}, imagebuild.Build(imagebuild.Config{Init: agent, Kernel: k, Out: initrd})
}

// rig is a whole controller, one machine in QEMU, and a client that knows nothing but the API.
type rig struct {
	*testing.T
	ctx        context.Context
	machines   pb.MachineServiceClient
	operations pb.OperationServiceClient
	admin      pb.AdminServiceClient
	vm         *vm.VM
	id         string
	firmware   vm.Firmware
}

// newRig has no machine yet; start makes it. It skips where there is no QEMU with the firmware.
func newRig(t *testing.T, fw vm.Firmware) *rig {
	t.Helper()
	if err := vm.Available(fw); err != nil {
		t.Skipf("needs a virtual machine: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	conn := connect(t, startController(t))
	return &rig{
		T: t, ctx: ctx, id: "metal-1", firmware: fw, machines: pb.NewMachineServiceClient(conn),
		operations: pb.NewOperationServiceClient(conn), admin: pb.NewAdminServiceClient(conn),
	}
}

type running struct {
	address, token string
	root           []byte
}

// startController runs a controller on loopback that guests reach at hostFromGuest.
func startController(t *testing.T) running {
	t.Helper()
	c := config.Default()
	c.DataDir = t.TempDir()
	c.TokensFile = filepath.Join(c.DataDir, "tokens")
	c.TLS.Names = []string{hostFromGuest, "127.0.0.1"}
	c.Listen = config.Listen{Frontpage: "127.0.0.1:0", Fleet: "127.0.0.1:0", Enrolment: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	c.Agents.HeartbeatInterval = config.Duration{Duration: time.Second}
	c.Database.URL = testkit.Database(t)
	token, err := auth.AddToken(c.TokensFile, "test", access.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := controller.New(t.Context(), *c, controller.Options{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	task.Background("controller", func() { done <- ctl.Run(ctx) })
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Errorf("controller: %v", err)
		}
	})
	<-ctl.Started()
	return running{ctl.Addresses().Frontpage, token, ctl.RootPEM()}
}

// bearer sends the token with every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

func connect(t *testing.T, to running) *grpc.ClientConn {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(to.root) {
		t.Fatal("the CA's root does not parse")
	}
	conn, err := grpc.NewClient(to.address, grpc.WithPerRPCCredentials(bearer(to.token)),
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "")),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// enrol registers the machine, issues its token, powers it on with a state disk that holds the token, and returns when
// its session is open. change may alter the machine before.
func (r *rig) enrol(change func(*vm.Config)) *pb.Machine {
	r.Helper()
	cfg := r.prepare()
	if change != nil {
		change(&cfg)
	}
	r.power(cfg)
	return r.connected("")
}

// prepare registers the machine and makes its disk. It is still off.
func (r *rig) prepare() vm.Config {
	r.Helper()
	_, err := r.machines.RegisterMachine(r.ctx, &pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: r.id}})
	if err != nil {
		r.Fatal(err)
	}
	issued, err := r.admin.IssueBootstrapToken(r.ctx,
		&pb.IssueBootstrapTokenRequest{MachineId: r.id, Role: pb.AgentRole_AGENT_ROLE_HOST})
	if err != nil {
		r.Fatal(err)
	}
	p, err := sharedParts()
	if err != nil {
		r.Fatal(err)
	}
	dir := r.TempDir()
	disk := filepath.Join(dir, "state.img")
	if err := ext4.StateDisk(disk, map[string][]byte{imagelayout.TokenFile: []byte(issued.GetBundle())}); err != nil {
		r.Fatal(err)
	}
	return vm.Config{
		Name: r.id, Dir: dir, Kernel: p.kernel.Image, Initrd: p.initrd, StateDisk: disk, Serial: "SN-4711",
		Firmware: r.firmware,
	}
}

// power switches the machine on; it is off at the end of the test. It may be called again once the machine is off.
func (r *rig) power(cfg vm.Config) {
	r.Helper()
	v, err := vm.Start(r.ctx, cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.vm = v
	r.Cleanup(func() {
		if err := v.Stop(); err != nil {
			r.Error(err)
		}
		if console, err := v.Serial(); r.Failed() && v == r.vm {
			r.Logf("console (%v):\n%s", err, console)
		}
	})
}

// connected waits for a session under another boot id than the one given.
func (r *rig) connected(other string) *pb.Machine {
	r.Helper()
	var m *pb.Machine
	testkit.Eventually(r.T, patience, func() bool {
		m = r.machine()
		return m.GetStatus().GetBootId() != "" && m.GetStatus().GetBootId() != other && reachable(m)
	}, "machine has no session under another boot id than %q", other)
	return m
}

func reachable(m *pb.Machine) bool {
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == "Reachable" {
			return c.GetStatus()
		}
	}
	return false
}

func (r *rig) machine() *pb.Machine {
	r.Helper()
	m, err := r.machines.GetMachine(r.ctx, &pb.GetMachineRequest{MachineId: r.id})
	if err != nil {
		r.Fatal(err)
	}
	return m
}

func (r *rig) enterMaintenance() {
	r.Helper()
	op, err := r.machines.EnterMaintenance(r.ctx, &pb.EnterMaintenanceRequest{MachineId: r.id, RequestId: "maintenance"})
	r.succeeded(r.ended(op, err))
}

// ended waits for the operation's end.
func (r *rig) ended(op *pb.Operation, err error) *pb.Operation {
	r.Helper()
	return r.endedWhile(op, err, func(*pb.Operation) {})
}

// endedWhile shows every reading of the operation to look.
func (r *rig) endedWhile(op *pb.Operation, err error, look func(*pb.Operation)) *pb.Operation {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
	testkit.Eventually(r.T, patience, func() bool {
		op, err = r.operations.GetOperation(r.ctx, &pb.GetOperationRequest{OperationId: op.GetOperationId()})
		if err != nil {
			r.Fatal(err)
		}
		look(op)
		return op.GetFinishedAt() != nil
	}, "operation has not ended")
	return op
}

func (r *rig) succeeded(op *pb.Operation) {
	r.Helper()
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		r.Fatalf("%s ended %s: %v", op.GetType(), op.GetPhase(), op.GetError())
	}
}

// dial connects to a forwarded port of the guest.
func (r *rig) dial(port int) net.Conn {
	r.Helper()
	address, err := r.vm.Forwarded(r.ctx, port)
	if err != nil {
		r.Fatal(err)
	}
	var d net.Dialer
	conn, err := d.DialContext(r.ctx, "tcp", address)
	if err != nil {
		r.Fatal(err)
	}
	return conn
}
