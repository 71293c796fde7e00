package lab_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent/inventory"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestRealReboot: the operation is SUCCEEDED only once another boot id was seen, and the hardware saw one reset.
func TestRealReboot(t *testing.T) {
	t.Parallel()
	r := newRig(t, vm.Direct)
	before := r.enrol(nil)
	r.checkInventory()
	r.enterMaintenance()

	op, err := r.machines.RebootMachine(r.ctx, &pb.RebootMachineRequest{MachineId: r.id, RequestId: "reboot"})
	op = r.endedWhile(op, err, func(op *pb.Operation) {
		if op.GetPhase() == pb.Operation_SUCCEEDED && r.machine().GetStatus().GetBootId() == before.GetStatus().GetBootId() {
			t.Error("SUCCEEDED under the old boot id")
		}
	})
	r.succeeded(op)

	first, second := op.GetEvidence()[evidence.BootIDBefore], op.GetEvidence()[evidence.BootIDAfter]
	if first != before.GetStatus().GetBootId() || second == first || len(second) != 36 {
		t.Errorf("boot ids %q, then %q; the machine had %q", first, second, before.GetStatus().GetBootId())
	}
	after := r.machine().GetStatus()
	if after.GetBootId() != second || after.GetAgentId() != before.GetStatus().GetAgentId() ||
		after.GetUnresolvedCommandId() != "" {
		t.Errorf("the machine came back as %v", after)
	}
	if n := r.vm.Reboots(); n != 1 {
		t.Errorf("the hardware saw %d resets, want 1", n)
	}
}

// checkInventory holds what was reported against what the machine was built as.
func (r *rig) checkInventory() {
	r.Helper()
	var inv *pb.Inventory
	testkit.Eventually(r.T, patience, func() bool {
		var err error
		inv, err = r.machines.GetInventory(r.ctx, &pb.GetInventoryRequest{MachineId: r.id})
		return err == nil
	}, "no inventory")
	var doc inventory.Document
	if err := json.Unmarshal(inv.GetDocument(), &doc); err != nil {
		r.Fatal(err)
	}
	built := r.vm.Config()
	if inv.GetSimulated() || doc.Simulated {
		r.Error("a machine in QEMU says that it is simulated by the agent")
	}
	if doc.System.Serial != built.Serial || !strings.EqualFold(doc.System.UUID, built.UUID) ||
		doc.System.Vendor != "Ingot" {
		r.Errorf("system %+v", doc.System)
	}
	if len(doc.Disks) != 1 || doc.Disks[0].SizeBytes != 64<<20 || doc.Disks[0].Serial != "disk0" {
		r.Errorf("disks %+v", doc.Disks)
	}
	if len(doc.NICs) != 1 || doc.NICs[0].MAC != built.MAC {
		r.Errorf("network interfaces %+v", doc.NICs)
	}
	if len(doc.PCI) == 0 || doc.CPU.Threads != 1 || doc.Memory.UsableBytes == 0 {
		r.Errorf("PCI %v, CPU %+v, memory %+v", doc.PCI, doc.CPU, doc.Memory)
	}
}

// TestRealMachineThatNeverComesBack: what cannot be known is not called done. The machine is fenced until its next boot
// proves what happened.
func TestRealMachineThatNeverComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, vm.Direct)
	before := r.enrol(nil)
	r.enterMaintenance()
	if err := r.vm.EndOnReset(r.ctx); err != nil {
		t.Fatal(err)
	}
	op, err := r.machines.RebootMachine(r.ctx, &pb.RebootMachineRequest{MachineId: r.id, RequestId: "lost",
		TimeoutSeconds: 10})
	op = r.ended(op, err)
	if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != "OUTCOME_UNKNOWN" {
		t.Fatalf("ended %s, %v", op.GetPhase(), op.GetError())
	}
	if err := r.vm.Wait(r.ctx); err != nil {
		t.Fatal(err)
	}
	m := r.machine().GetStatus()
	if m.GetUnresolvedCommandId() == "" || m.GetEffectiveState() != pb.MachineStatus_ATTENTION {
		t.Errorf("the machine is not fenced: %v", m)
	}
	_, err = r.machines.RebootMachine(r.ctx, &pb.RebootMachineRequest{MachineId: r.id, RequestId: "too-early"})
	if reasonOf(err) != "COMMAND_UNRESOLVED" {
		t.Errorf("another reboot: %v", err)
	}

	r.power(r.vm.Config())
	r.connected(before.GetStatus().GetBootId())
	testkit.Eventually(t, patience, func() bool { return r.machine().GetStatus().GetUnresolvedCommandId() == "" },
		"a new boot does not lift the fence")
	again, err := r.operations.GetOperation(r.ctx, &pb.GetOperationRequest{OperationId: op.GetOperationId()})
	if err != nil || again.GetPhase() != pb.Operation_FAILED {
		t.Errorf("the finished operation is now %s (%v)", again.GetPhase(), err)
	}
}

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

const allowed, dropped = 22, 23

// TestRealReconfigure: host name and packet filter are set in the guest's kernel, seen from outside, and still there
// after a power cut.
func TestRealReconfigure(t *testing.T) {
	t.Parallel()
	r := newRig(t, vm.Direct)
	before := r.enrol(func(c *vm.Config) { c.Forward = []int{allowed, dropped} })
	for _, port := range []int{allowed, dropped} {
		if !r.answers(port) {
			t.Errorf("port %d is closed to us before there is a policy", port)
		}
	}
	r.enterMaintenance()
	op, err := r.machines.ReconfigureMachine(r.ctx, &pb.ReconfigureMachineRequest{
		MachineId: r.id, RequestId: "policy",
		Config: &pb.NetReconfig{Hostname: "web-7", Firewall: &pb.FirewallPolicy{
			DefaultInput: "drop", Allow: []*pb.FirewallRule{{Protocol: "tcp", PortFrom: allowed}},
		}},
	})
	op = r.ended(op, err)
	r.succeeded(op)
	if e := op.GetEvidence(); e["hostname"] != "web-7" || e["firewall_digest"] == "" || e[evidence.ConfigDigest] == "" {
		t.Errorf("evidence %v", e)
	}
	r.holdsPolicy()

	if err := r.vm.SystemReset(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.connected(before.GetStatus().GetBootId())
	r.holdsPolicy()
	console, err := r.vm.Serial()
	if err != nil || !strings.Contains(console, "hostname=web-7") {
		t.Errorf("the machine did not start as web-7 (%v)", err)
	}
}

func (r *rig) holdsPolicy() {
	r.Helper()
	if !r.answers(allowed) {
		r.Errorf("port %d is allowed and does not answer", allowed)
	}
	if r.answers(dropped) {
		r.Errorf("port %d should be dropped and answers", dropped)
	}
}

// silence is well above the time in which an emulated machine answers.
const silence = 2 * time.Second

// answers reports whether the guest refuses a connection to the port, which has no listener. A packet that is dropped
// gets no answer.
func (r *rig) answers(port int) bool {
	r.Helper()
	conn := r.dial(port)
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		r.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.Is(err, os.ErrDeadlineExceeded) && !(errors.As(err, &timeout) && timeout.Timeout())
}

// TestRealNetboot: BootNext is set in the firmware's variables by device path, and the firmware obeys it.
func TestRealNetboot(t *testing.T) {
	t.Parallel()
	r := newRig(t, vm.UEFI)
	cfg := r.prepare()
	// A firmware that is given a kernel makes no boot entries. On its own it makes them, and goes by their order.
	if said := r.firmwareAlone(cfg); !strings.Contains(said, diskEntry) {
		t.Errorf("without BootNext the firmware does not try the disk first:\n%s", said)
	}
	r.power(cfg)
	r.connected("")
	r.enterMaintenance()
	op, err := r.machines.NetbootMachine(r.ctx, &pb.NetbootMachineRequest{MachineId: r.id, RequestId: "netboot",
		Mode: "PXE"})
	op = r.ended(op, err)
	r.succeeded(op)
	if got, want := op.GetEvidence()[evidence.BootNext], "pxe "+r.vm.Config().MAC; got != want {
		t.Errorf("read back %q, want %q", got, want)
	}
	if err := r.vm.Stop(); err != nil {
		t.Fatal(err)
	}
	if said := r.firmwareAlone(cfg); !strings.Contains(said, ownPXE) || strings.Contains(said, diskEntry) {
		t.Errorf("with BootNext the firmware does not try the network first:\n%s", said)
	}
}

const (
	diskEntry = `failed to load Boot0001 "UEFI Misc Device"` // the state disk, which has nothing to boot
	ownPXE    = "Start PXE over IPv4"                        // what the firmware's entry for the network starts
	cardROM   = "iPXE"                                       // the network card's own program, which comes last
)

// firmwareAlone starts the machine without a kernel until it tries the network, cuts the power, and returns the
// firmware's output.
func (r *rig) firmwareAlone(cfg vm.Config) string {
	r.Helper()
	cfg.Kernel, cfg.Initrd = "", ""
	r.power(cfg)
	before, err := r.vm.Serial()
	if err != nil {
		r.Fatal(err)
	}
	said, err := r.vm.WaitSerial(r.ctx, func(s string) bool {
		return strings.Contains(s[len(before):], ownPXE) || strings.Contains(s[len(before):], cardROM)
	})
	if err != nil {
		r.Fatal(err)
	}
	if err := r.vm.Stop(); err != nil {
		r.Fatal(err)
	}
	return said[len(before):]
}
