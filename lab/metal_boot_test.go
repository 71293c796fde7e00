//go:build metal

package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalThatCannotBeInstalledIsWhatItWas: one machine with a system of its own, and three installations that cannot
// succeed. An order that the inventory rules out is refused at once. One that only the installer can judge is refused
// by it, and the old system is booted again. A kexec that comes back in the old system is no success. The next
// installation is plain.
func TestMetalThatCannotBeInstalledIsWhatItWas(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
	s.installs(m, "first")
	before := s.stands(m.Name())

	s.installDisk(m.Name(), "serial=nowhere")
	s.refusedAtOnce(m.Name(), "DISK_RULE_NO_UNIQUE_MATCH")
	s.holdsAsBefore(m.Name(), before, true)

	// A disk's name in the installer is unrelated to the names in the system that runs now.
	s.installDisk(m.Name(), "path=/dev/nowhere")
	op := s.ended(s.reimageBy(m.Name(), "no disk", "kexec"), nil)
	s.holdsTurnedBack(op)
	s.took("turned back", op)
	before = s.holdsAsBefore(m.Name(), before, false)

	s.installDisk(m.Name(), "serial="+m.Name()+"-d0")
	bad := s.installerThatReboots()
	op = s.ended(s.reimageBy(m.Name(), "old system", "kexec"), nil)
	if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != "WRONG_SYSTEM_BOOTED" {
		t.Errorf("a kexec that came back ended %s: %v", op.GetPhase(), op.GetError())
	}
	for _, c := range s.commands(op) {
		if c.GetKind() == "kexec" && c.GetOutcome() != "FAILED" {
			t.Errorf("the kexec is recorded as %v", c)
		}
	}
	s.took("back in the old system, twice", op)
	s.holdsAsBefore(m.Name(), before, false)

	for _, ref := range bad {
		if _, err := s.api.Admin.RemoveImage(s.ctx, &pb.RemoveImageRequest{ImageRef: ref}); err != nil {
			t.Fatal(err)
		}
	}
	s.holdsInstalled(m, s.ended(s.reimageBy(m.Name(), "plain", "kexec"), nil))
	if revoked, known := s.revoked(m.Name(), before.agent); !revoked || !known {
		t.Errorf("after the verified write, the certificate of the system before is revoked: %t, known: %t", revoked, known)
	}
}

func (s *site) took(what string, op *pb.Operation) {
	s.Helper()
	s.Logf("%s in %.1f s: %s", what, op.GetFinishedAt().AsTime().Sub(op.GetCreatedAt().AsTime()).Seconds(),
		op.GetError().GetMessage())
}

// standing is what an installation that cannot succeed must not change.
type standing struct {
	node          pb.NodeState
	attempts      int32
	digest, agent string
	boot          string
	provisioned   bool
}

func (s *site) stands(name string) standing {
	s.Helper()
	m := s.get(name)
	n, err := s.api.Nodes.GetNode(s.ctx, &pb.GetNodeRequest{NodeId: name})
	if err != nil {
		s.Fatal(err)
	}
	out := standing{
		node: n.GetState(), attempts: n.GetInstallAttempts(), digest: m.GetStatus().GetOsImageDigest(),
		boot:  m.GetStatus().GetBootId(),
		agent: m.GetStatus().GetAgentId(),
	}
	for _, c := range m.GetStatus().GetConditions() {
		out.provisioned = out.provisioned || c.GetType() == "Provisioned" && c.GetStatus()
	}
	return out
}

// holdsAsBefore: the same system runs under the same identity; same is set when it must not even have been restarted.
func (s *site) holdsAsBefore(name string, before standing, same bool) standing {
	s.Helper()
	now := s.stands(name)
	compared := now
	compared.boot = before.boot
	if compared != before || (now.boot == before.boot) != same {
		s.Errorf("the machine is %+v, and was %+v", now, before)
	}
	if revoked, known := s.revoked(name, before.agent); revoked || !known {
		s.Errorf("the certificate of its system is revoked: %t, known: %t", revoked, known)
	}
	if b := s.get(name).GetStatus(); b.GetBootAssignment() != "disk" || b.GetUnresolvedCommandId() != "" {
		s.Errorf("the machine is left as %v", b)
	}
	return now
}

// revoked reports whether an agent of the machine has a certificate that was revoked.
func (s *site) revoked(name, agent string) (revoked, known bool) {
	s.Helper()
	list, err := s.api.Admin.ListAgents(s.ctx, &pb.ListAgentsRequest{})
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range list.GetAgents() {
		if a.GetMachineId() != name || a.GetAgentId() != agent {
			continue
		}
		for _, c := range a.GetCerts() {
			known, revoked = true, revoked || c.GetRevokedAt() != nil
		}
	}
	return revoked, known
}

// refusedAtOnce: no operation is made, and the answer has the reason in a form for programs.
func (s *site) refusedAtOnce(name, reason string) {
	s.Helper()
	testkit.Eventually(s.T, cycle, func() bool {
		_, err := s.api.Machines.GetInventory(s.ctx, &pb.GetInventoryRequest{MachineId: name})
		return err == nil
	}, "the machine's agent reports no inventory")
	_, err := s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{MachineId: name, RequestId: "refused",
		ImageRef: metal.TinyRef})
	var info *errdetails.ErrorInfo
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			info = i
		}
	}
	if status.Code(err) != codes.FailedPrecondition || info.GetReason() != reason ||
		info.GetMetadata()["machine_id"] != name {
		s.Errorf("a reimage that cannot succeed: %v, %v", err, info)
	}
}

// holdsTurnedBack: the installer was asked, refused, and got no write; the operation reports that.
func (s *site) holdsTurnedBack(op *pb.Operation) {
	s.Helper()
	text := op.GetError().GetMessage()
	if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != "DISK_RULE_NO_UNIQUE_MATCH" ||
		!strings.Contains(text, "nothing was written") || !strings.Contains(text, "runs again") {
		s.Errorf("it ended %s: %v", op.GetPhase(), op.GetError())
	}
	var kinds []string
	for _, c := range s.commands(op) {
		kinds = append(kinds, c.GetKind())
		if c.GetKind() == "preflight" && c.GetGrantedAt() != nil {
			s.Errorf("the preflight was granted: %v", c)
		}
	}
	if !slices.Contains(kinds, "preflight") || slices.Contains(kinds, "repave") {
		s.Errorf("the commands were %v", kinds)
	}
}

// installerThatReboots adds an installer that restarts the machine as soon as it runs, as one does whose kernel panics.
// It is newer than the good one. It returns the names of its files.
func (s *site) installerThatReboots() []string {
	s.Helper()
	p, err := sharedMetal()
	if err != nil {
		s.Fatal(err)
	}
	source, program := filepath.Join(s.dir, "reboot.go"), filepath.Join(s.dir, "reboot")
	const code = `package main

import "syscall"

func main() { panic(syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)) }
`
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("build: %v: %s", err, out)
	}
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		s.Fatal(err)
	}
	kernel, err := debian.FindKernel(s.ctx, cache)
	if err != nil {
		s.Fatal(err)
	}
	initrd := filepath.Join(s.dir, "initrd-that-reboots")
	if err := imagebuild.Build(imagebuild.Config{Init: program, Kernel: kernel, Out: initrd}); err != nil {
		s.Fatal(err)
	}
	var refs []string
	for kind, path := range map[string]string{"installer-kernel": filepath.Join(p.files.Dir, imagebuild.KernelFile),
		"installer-initrd": initrd} {
		ref := kind + "-that-reboots"
		if err := s.lab.Client().Upload(s.ctx, path, &pb.Image{ImageRef: ref, Kind: kind, Format: "raw",
			Arch: "amd64"}); err != nil {
			s.Fatal(err)
		}
		refs = append(refs, ref)
	}
	return refs
}
