package installer_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/installer"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// image puts an image into the site's cache and returns the order to write it.
func (s *site) image(t *testing.T) *fleetv1.CommandSpec {
	t.Helper()
	raw, err := disktest.Image(t.TempDir(), 12<<20)
	if err != nil {
		t.Fatal(err)
	}
	file, err := disktest.Pack(raw)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.blobs[sum(file)] = file
	s.mu.Unlock()
	return &fleetv1.CommandSpec{
		OperationId: "op-1", TimeoutMs: 60_000, NeedsGrant: true,
		Action: &fleetv1.CommandSpec_Repave{Repave: &fleetv1.RepaveAction{
			ImageRef: "debian-12", Sha256Raw: sum(raw), BlobSha256: sum(file), Format: "raw.zst", RawSize: int64(len(raw)),
			FileSize: int64(len(file)), DiskRule: "serial=" + disktest.Serial,
		}},
	}
}

// state reads the files of the state partition.
func (s *site) state(t *testing.T) map[string]string {
	t.Helper()
	if out, err := exec.Command("partx", "--update", s.machine.Device).CombinedOutput(); err != nil {
		t.Fatalf("partx: %v: %s", err, out)
	}
	dir := t.TempDir()
	if err := unix.Mount(s.machine.Device+"p2", dir, "ext4", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		testkit.Eventually(t, 20*time.Second, func() bool { return unix.Unmount(dir, 0) == nil },
			"the state partition is unmounted")
	}()
	files := map[string]string{}
	for _, name := range []string{"agent.yaml", "bootstrap-token", "image.json", "etc/hostname"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}

// From the boot token to a disk with the next system and its identity: the installer, its site and a controller.
func TestInstallerRepavesItsMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t, agenttest.Hooks{})
	s.start()
	session := s.c.WaitSessions(1)
	if h := session.Hello; !slices.Equal(h.GetRoles(), []string{"installer"}) ||
		!slices.Equal(h.GetCapabilities(), []string{
			"agentless", "data_disks", "erase", "mirror", "preflight", "reboot", "repave", "reset_devices",
		}) {
		t.Errorf("says hello as %v with %v", h.GetRoles(), h.GetCapabilities())
	}
	spec := s.image(t)
	got := s.c.WaitResult(s.c.Order(spec))
	if got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED || got.GetEvidence()[evidence.ImageDigest] != "sha256:"+
		spec.GetRepave().GetSha256Raw() ||
		got.GetEvidence()["disk"] != disktest.Serial {
		t.Fatalf("result %v\n%s", got, s.console)
	}
	files := s.state(t)
	want := map[string]string{
		"agent.yaml": "proxy: " + s.cfg.Boot.Site + "\n", "bootstrap-token": s.c.Bundle() + "\n", "etc/hostname": "n1\n",
		"image.json": `{"image_ref":"debian-12","digest":"sha256:` + spec.GetRepave().GetSha256Raw() +
			`","operation_id":"op-1"}` + "\n",
	}
	for name, content := range want {
		if files[name] != content {
			t.Errorf("%s is %q, want %q", name, files[name], content)
		}
	}
	if strings.Contains(s.console.String(), s.c.Bundle()) {
		t.Error("the token is on the console")
	}
	vouched := s.c.Vouched()
	if len(vouched) != 1 || vouched[0].GetMacAddress() != mac.String() || vouched[0].GetBootId() != "boot-1" ||
		vouched[0].GetBootToken() != token {
		t.Errorf("vouched for %v", vouched)
	}
}

func TestInstallerErasesItsMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t, agenttest.Hooks{})
	s.start()
	s.c.WaitSessions(1)
	got := s.c.WaitResult(s.c.Order(&fleetv1.CommandSpec{
		TimeoutMs: 60_000, NeedsGrant: true,
		Action: &fleetv1.CommandSpec_Erase{Erase: &fleetv1.EraseAction{Method: "overwrite"}},
	}))
	if got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED || got.GetEvidence()[evidence.EraseMethod] != "overwrite" {
		t.Fatalf("result %v\n%s", got, s.console)
	}
}

// A process that is started again in the same boot has its certificate, and the command it was in the middle of.
func TestInstallerIsKilledAndResumes(t *testing.T) {
	t.Parallel()
	var refused atomic.Bool
	s := newSite(t, agenttest.Hooks{Identity: func() error {
		refused.Store(true)
		return failure.ToStatus(failure.Unavailable("CONTROLLER_DRAINING", "later")).Err()
	}})
	stop := s.start()
	s.c.WaitSessions(1)
	id := s.c.Order(s.image(t))
	s.c.Wait("the image is on the disk", refused.Load)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.start()
	got := s.c.WaitResult(id)
	if got.GetOutcome() != fleetv1.CommandResult_FAILED || !got.GetRetryable() || len(s.c.Vouched()) != 1 {
		t.Fatalf("%v, vouched %d times", got, len(s.c.Vouched()))
	}
	head := make([]byte, 1<<20)
	f, err := os.Open(s.machine.Device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(head); err != nil || !bytes.Equal(head, make([]byte, 1<<20)) {
		t.Errorf("the disk may boot (%v)", err)
	}
	s.c.SetHooks(agenttest.Hooks{})
	if got := s.c.WaitResult(s.c.Order(s.image(t))); got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED {
		t.Errorf("the next attempt: %v", got)
	}
}

// Killed between the last write and its result: the disk shows what the process could not report.
func TestInstallerIsKilledAfterItsWork(t *testing.T) {
	t.Parallel()
	s := newSite(t, agenttest.Hooks{})
	s.cfg.Failpoints = failpoint.NewScope()
	s.cfg.Failpoints.Set("agent.after-effect", failpoint.Error().At(1))
	done := make(chan error, 1)
	go func() { done <- installer.Run(t.Context(), s.cfg) }()
	s.c.WaitSessions(1)
	spec := s.image(t)
	id := s.c.Order(spec)
	if err := <-done; !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("ended with %v", err)
	}
	before, err := os.ReadFile(s.machine.Device)
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	got := s.c.WaitResult(id)
	if got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED || got.GetEvidence()[evidence.ImageDigest] != "sha256:"+
		spec.GetRepave().GetSha256Raw() {
		t.Fatalf("%v\n%s", got, s.console)
	}
	after, err := os.ReadFile(s.machine.Device)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the disk was written after it was done (%v)", err)
	}
}

func TestInstallerStopsWhereItIsNotWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *site)
		says   string
	}{
		"another key was first": {func(s *site) {
			s.c.SetHooks(agenttest.Hooks{Vouch: func(*fleetv1.VouchInstallerRequest) error {
				return failure.ToStatus(failure.Denied(baremetalv1.Reason_ENROLMENT_CONTESTED.String(), "another key")).Err()
			}})
		}, "reason=ENROLMENT_CONTESTED"},
		"the token has died": {func(s *site) { s.cfg.Boot.Token = strings.Repeat("0", 32) }, "reason=BOOT_TOKEN_DEAD"},
		"another card":       {func(s *site) { s.cfg.Boot.MAC = "52:54:00:00:00:99" }, "reason=NOT_WHERE_ASSIGNED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, agenttest.Hooks{})
			c.change(s)
			stop := s.start()
			testkit.Eventually(t, 20*time.Second, func() bool { return strings.Contains(s.console.String(), "STOPPED") },
				"it stops")
			if err := stop(); err != nil || !strings.Contains(s.console.String(), c.says) || s.c.Sessions() != 0 {
				t.Errorf("%v, %d sessions\n%s", err, s.c.Sessions(), s.console)
			}
		})
	}
}

// A boot server that is starting answers with all sorts of errors.
func TestInstallerIsPatientWithItsSite(t *testing.T) {
	t.Parallel()
	s := newSite(t, agenttest.Hooks{})
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { http.Error(w, "bad gateway", http.StatusBadGateway) },
		func(w http.ResponseWriter) { http.Error(w, "not found", http.StatusNotFound) },
		func(w http.ResponseWriter) { w.Write([]byte("<html>")) },
		func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(`{"reason":"CONTROLLER_DRAINING","message":"later"}`))
		},
	}
	s.desk = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(answers) == 0 {
			w.WriteHeader(http.StatusContinue)
			return
		}
		answers[0](w)
		answers = answers[1:]
	})
	s.start()
	s.c.WaitSessions(1)
}

// A machine that was booted to be looked at is not written to.
func TestRescueLeavesDisksAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, agenttest.Hooks{})
	s.mode = segment.BootRescue
	stop := s.start()
	if caps := s.c.WaitSessions(1).Hello.GetCapabilities(); !slices.Equal(caps, []string{"reboot", "reset_devices"}) {
		t.Errorf("rescue has %v", caps)
	}
	got := s.c.WaitResult(s.c.Order(s.image(t)))
	if got.GetOutcome() != fleetv1.CommandResult_FAILED ||
		got.GetReason() != baremetalv1.Reason_CAPABILITY_MISSING.String() {
		t.Errorf("repave: %v", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	// The mode outlives a restart of the process.
	s.start()
	if caps := s.c.WaitSessions(2).Hello.GetCapabilities(); slices.Contains(caps, "repave") {
		t.Errorf("rescue has %v after a restart", caps)
	}
}
