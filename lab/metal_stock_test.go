//go:build metal

package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// envStock names an image as a vendor ships it: scripts/stock-image makes one.
const envStock = "INGOT_TEST_STOCK"

// stockCycle is a limit for the first boot of a distribution in emulation: cloud-init alone takes minutes.
const stockCycle = 15 * time.Minute

const stockSecret = "nobody-else-reads-this"

const stockUserData = `#cloud-config
write_files:
  - path: /etc/from-user-data
    permissions: "0644"
    content: ` + stockSecret + `
`

// TestMetalStock: an image without a preparation for Ingot is installed, enrols, and accepts a log-in with the key.
// `make lab-stock` runs it.
func TestMetalStock(t *testing.T) {
	if !asRoot(t) {
		return
	}
	image := os.Getenv(envStock)
	if image == "" {
		t.Fatalf("%s names no image: scripts/stock-image FILE.raw.zst", envStock)
	}
	for name, cfg := range map[string]metal.MachineConfig{
		"BIOS by Redfish": {Firmware: vm.BIOS, BMC: metal.Redfish}, "UEFI by IPMI": {Firmware: vm.UEFI, BMC: metal.IPMI},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			cfg.MemoryMB = 1024
			s.installsStock(s.machine(cfg), image)
		})
	}
}

// key is the path of the key that installsStock has made.
func (s *site) key() string { return filepath.Join(s.dir, "id") }

func (s *site) installsStock(m *metal.Machine, image string) *pb.Operation {
	s.Helper()
	if err := s.api.Upload(s.ctx, image, &pb.Image{ImageRef: "stock", Format: "raw.zst"}); err != nil {
		s.Fatal(err)
	}
	key := s.key()
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		s.Fatalf("ssh-keygen (package openssh-client): %v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		s.Fatal(err)
	}
	s.maintain(m.Name())
	wire := s.capture()
	op := s.writesStock(m, "stock", string(public))
	s.holdsInstalled(m, op)
	s.holdsChanges(op)
	s.holdsNoSeed(wire(), string(public))
	// The agent may be up before cloud-init has come to its end.
	var said string
	testkit.Eventually(s.T, stockCycle, func() bool {
		said = s.ssh(m, key,
			"sudo cloud-init status --long; hostname; cat /etc/from-user-data; echo; df --output=size -BM / | tail -1")
		return said != "" && !strings.Contains(said, "status: running") && !strings.Contains(said, "status: not run")
	}, "no ssh session in the new system")
	s.Logf("ssh says: %s", said)
	for _, want := range []string{"status: done", "web-1\n", stockSecret} {
		if !strings.Contains(said, want) {
			s.Errorf("ssh says %q, which lacks %q", said, want)
		}
	}
	words := append([]string{""}, strings.Fields(said)...)
	size, err := strconv.Atoi(strings.TrimSuffix(words[len(words)-1], "M"))
	if most := metal.DiskBytes >> 20; err != nil || size < most*3/4 {
		s.Errorf("the root has %q of a disk of %d MiB: it was not grown", words[len(words)-1], most)
	}
	return op
}

// writesStock installs the image that installsStock has added.
func (s *site) writesStock(m *metal.Machine, request, public string) *pb.Operation {
	s.Helper()
	op, err := s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{
		MachineId: m.Name(), RequestId: request, ImageRef: "stock", TimeoutSeconds: int32(stockCycle.Seconds()),
		Seed: &pb.SystemSeed{
			Hostname: "web-1", SshAuthorizedKeys: []string{strings.TrimSpace(public)}, UserData: stockUserData,
		},
	})
	return s.endedWithin(stockCycle, op, err)
}

// reinstallsStock installs it once more.
func (s *site) reinstallsStock(m *metal.Machine) *pb.Operation {
	s.Helper()
	public, err := os.ReadFile(s.key() + ".pub")
	if err != nil {
		s.Fatal(err)
	}
	op := s.writesStock(m, "again", string(public))
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		s.Fatalf("installed again: %s, %v", op.GetPhase(), op.GetError())
	}
	return op
}

// endedWithin waits for the operation's end longer than ended does.
func (s *site) endedWithin(limit time.Duration, op *pb.Operation, err error) *pb.Operation {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	testkit.Eventually(s.T, limit, func() bool {
		now, err := s.api.Operations.GetOperation(s.ctx, &pb.GetOperationRequest{OperationId: op.GetOperationId()})
		if err != nil {
			s.Fatal(err)
		}
		op = now
		return op.GetFinishedAt() != nil
	}, "operation has not ended")
	return op
}

// holdsChanges: the evidence lists what was added to the image.
func (s *site) holdsChanges(op *pb.Operation) {
	s.Helper()
	var list []firstboot.Change
	if err := json.Unmarshal([]byte(op.GetEvidence()[evidence.AddedFiles]), &list); err != nil {
		s.Fatalf("evidence %v: %v", op.GetEvidence(), err)
	}
	paths := map[string]firstboot.Change{}
	for _, c := range list {
		paths[c.Path] = c
		s.Logf("added to %s: %s, %d bytes, sha256:%s", op.GetEvidence()[evidence.AddedTo], c.Path, c.Size, c.SHA256)
	}
	for _, want := range []string{"/usr/bin/ingot-agent", "/var/lib/cloud/seed/nocloud/user-data"} {
		if paths[want].Size == 0 || len(paths[want].SHA256) != 64 {
			s.Errorf("the evidence lacks %s", want)
		}
	}
}

// holdsNoSeed: what the system was given has crossed the segment under TLS alone, and no log repeats it.
func (s *site) holdsNoSeed(wire []byte, public string) {
	s.Helper()
	s.keepsSecrets(wire)
	logs, err := s.lab.Logs()
	if err != nil {
		s.Fatal(err)
	}
	seen := map[string][]byte{"wire": wire}
	for name, text := range logs {
		seen["log of "+name] = []byte(text)
	}
	for where, text := range seen {
		for _, secret := range []string{stockSecret, strings.Fields(public)[1]} {
			if bytes.Contains(text, []byte(secret)) {
				s.Errorf("the %s has %.20q", where, secret)
			}
		}
	}
}

// ssh runs a command in the machine's system, as the image's default user, and returns what it prints.
func (s *site) ssh(m *metal.Machine, key, command string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	address := s.addressOf(m)
	cmd := s.lab.SiteNetwork().
		Command(ctx, "ssh", "-i", key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o",
			"UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=30", "debian@"+address, command)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.Logf("ssh to %s: %v: %s%s", address, err, out, stderr.Bytes())
		return ""
	}
	return string(out)
}

// addressOf is what the machine leases.
func (s *site) addressOf(m *metal.Machine) string {
	s.Helper()
	list, err := s.api.Admin.ListSiteLeases(s.ctx, &pb.ListSiteLeasesRequest{Site: metal.SiteName})
	if err != nil {
		s.Fatal(err)
	}
	address := ""
	for _, l := range list.GetLeases() {
		if strings.EqualFold(l.GetMacAddress(), m.About().MACs[0]) {
			address = l.GetAddress()
		}
	}
	return address
}
