package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// server is a Postgres of its own, as another host has one.
func server(t *testing.T) (c *localpg.Cluster, dir string) {
	t.Helper()
	dir = testkit.TempDir(t)
	c, err := localpg.Open(t.Context(), localpg.Config{Dir: filepath.Join(dir, "pg"), Ephemeral: true,
		Settings: map[string]string{"fsync": "off", "shared_buffers": "32MB"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Log(err)
		}
	})
	return c, filepath.Join(dir, "pg")
}

// writeImage writes an image that is larger than what every backup holds, also when it is compressed.
func writeImage(t *testing.T) string {
	t.Helper()
	raw := rig.WholeDisk(4 << 20)
	rand.NewChaCha8([32]byte{7}).Read(raw[1<<20 : 3<<20]) //nolint:errcheck // never fails
	path := filepath.Join(t.TempDir(), "system.img")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func reimage(t *testing.T, c *harness.Client, m *harness.Machine, request string) *baremetalv1.Operation {
	t.Helper()
	return harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{MachineId: m.ID,
		RequestId: request, ImageRef: "kept-1", TimeoutSeconds: rig.PatientTime})
}

// count counts the effects on the machine's disk and power.
func count(m *harness.Machine) (n int) {
	for _, r := range m.Journal() {
		if r.Stage == sim.StageEffect && (r.Kind == sim.KindReboot || r.Kind == sim.KindRepave || r.Kind == sim.KindErase) {
			n++
		}
	}
	return n
}

// storeDigests lists the files of the image store, by their names, and holds that their bytes fit.
func storeDigests(t *testing.T, dir string) (out []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9a-f]", 64)))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != filepath.Base(p) {
			t.Errorf("%s has other bytes", p)
		}
		out = append(out, filepath.Base(p))
	}
	return out
}

// TestALostControllerGoesOnFromItsBackup: agents come back untouched, nothing is done twice, and what came after the
// backup waits for an admin.
func TestALostControllerGoesOnFromItsBackup(t *testing.T) {
	t.Parallel()
	first, firstDir := server(t)
	second, _ := server(t)
	c := harness.NewControllerProcessOn(t, first.URL(localpg.Database))
	reader, err := auth.AddToken(c.TokensFile(), "reader", access.ScopeRead)
	if err != nil {
		t.Fatal(err)
	}
	c.Start("")
	if code, out := c.Ingot("image", "add", "kept-1", writeImage(t)); code != 0 {
		t.Fatalf("image add: %d\n%s", code, out)
	}
	images := storeDigests(t, c.ImagesDir())

	done := c.NewMachine(t, harness.MachineOptions{})                           // its work ends before the backup
	late := c.NewMachine(t, harness.MachineOptions{Script: "reboot:late=6s"})   // its work is under way
	unknown := c.NewMachine(t, harness.MachineOptions{Delay: time.Millisecond}) // its work begins afterwards
	machines := []*harness.Machine{done, late, unknown}
	for _, m := range machines {
		m.WaitConnected()
		rig.Maintenance(t, c.Client, m.ID)
	}
	before := reimage(t, c.Client, done, "before")
	rig.Ended(t, c.Wait(before.GetOperationId(), rig.Soon), rig.Succeeded, "")
	under := rig.Reboot(t, c.Client, late.ID, "under", rig.PatientTime)
	c.WaitCommand(late.ID, "granted", harness.InState("GRANTED"))

	file := filepath.Join(t.TempDir(), "ingot.tar.zst")
	out, err := c.Run("backup", "--images", "--out", file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || !strings.Contains(out, "secret") {
		t.Errorf("%v, %v: %s", info, err, out)
	}
	after := reimage(t, c.Client, unknown, "after")
	rig.Ended(t, c.Wait(after.GetOperationId(), rig.Soon), rig.Succeeded, "")
	testkit.Eventually(t, rig.Soon, func() bool { return count(late) > 0 }, "the machine does not reboot")
	var certs [][]byte
	for _, m := range machines {
		certs = append(certs, rig.AgentCert(t, m).Certificate[0])
	}

	heads := c.Intact()
	c.Lose()
	if err := syscall.Kill(first.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(firstDir); err != nil {
		t.Log(err) // the server's own cleaning was quicker
	}
	effects := map[string]int{}
	for _, m := range machines {
		effects[m.ID] = count(m)
	}
	c.MoveTo(second.URL(localpg.Database))
	if out, err = c.Run("restore", file); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "Next:") || !strings.Contains(out, "thaw") {
		t.Errorf("it does not say what comes next: %s", out)
	}
	if _, err := c.Run("restore", file); err == nil || !strings.Contains(err.Error(), "nothing was restored") {
		t.Errorf("a second restore onto the same: %v", err)
	}
	c.Start("")

	for i, m := range machines {
		m.WaitConnected()
		if !bytes.Equal(certs[i], rig.AgentCert(t, m).Certificate[0]) {
			t.Errorf("the agent of %s has another certificate: it enrolled again", m.ID)
		}
	}
	if _, err := harness.Call(t, c.WithToken(reader).Machines().GetMachine,
		&baremetalv1.GetMachineRequest{MachineId: done.ID}); err != nil {
		t.Errorf("a token of before: %v", err)
	}
	if got := storeDigests(t, c.ImagesDir()); len(images) == 0 || strings.Join(got, " ") != strings.Join(images, " ") {
		t.Errorf("images %v, were %v", got, images)
	}
	if code, out := c.Ingot("image", "list"); code != 0 || !strings.Contains(out, "kept-1") {
		t.Errorf("image list: %d\n%s", code, out)
	}
	frozen(t, c.Client, unknown)

	// What was granted before goes on to its end; what the database never knew is not known, and stays as it is.
	rig.Ended(t, c.Operation(before.GetOperationId()), rig.Succeeded, "")
	rig.Ended(t, c.Wait(under.GetOperationId(), rig.Soon), rig.Succeeded, "")
	_, err = harness.Call(t, c.Operations().GetOperation,
		&baremetalv1.GetOperationRequest{OperationId: after.GetOperationId()})
	if !harness.HasReason(err, "OPERATION_NOT_FOUND") {
		t.Errorf("an operation of after the backup: %v", err)
	}
	for _, m := range machines {
		if n := count(m); n != effects[m.ID] {
			t.Errorf("%s had %d effects before the loss and %d after the restore", m.ID, effects[m.ID], n)
		}
	}
	explained(t, c.Client, heads, unknown.ID)
	thawed(t, c.Client, machines, effects)
	explained(t, c.Client, heads, unknown.ID)
}

// explained holds that verifying is silent after the restore, and that heads of before it are kept or lost by it.
func explained(t *testing.T, c *harness.Client, heads []*baremetalv1.HistoryHead, lost string) {
	t.Helper()
	c.Intact()
	found := c.HeadsNotKept(heads)
	if found[lost] != baremetalv1.HeadFinding_HEAD_FINDING_RESTORED {
		t.Errorf("the head of %s, whose work began after the backup: %v", lost, found[lost])
	}
	for id, f := range found {
		if f != baremetalv1.HeadFinding_HEAD_FINDING_RESTORED {
			t.Errorf("the head of %q: %v", id, f)
		}
	}
}

// frozen holds that nothing is started, and why.
func frozen(t *testing.T, c *harness.Client, m *harness.Machine) {
	t.Helper()
	testkit.Eventually(t, rig.Soon, func() bool {
		info := harness.Must(t, c.Admin().GetServerInfo, &baremetalv1.GetServerInfoRequest{})
		return info.GetFrozenSince() != nil && info.GetAgentsNotSeen() == 0
	}, "it is not frozen, or does not see all agents")
	if code, out := c.Ingot("why", m.ID); !strings.Contains(out, "FLEET_FROZEN") {
		t.Errorf("ingot why does not name the freeze (%d):\n%s", code, out)
	}
	_, err := harness.Call(t, c.Machines().RebootMachine, &baremetalv1.RebootMachineRequest{MachineId: m.ID,
		RequestId: "frozen", TimeoutSeconds: rig.PatientTime})
	if !harness.HasReason(err, "FLEET_FROZEN") {
		t.Errorf("a reboot while the fleet is frozen: %v", err)
	}
}

// thawed lifts the freeze, and holds that each machine does new work, once.
func thawed(t *testing.T, c *harness.Client, machines []*harness.Machine, effects map[string]int) {
	t.Helper()
	if code, out := c.Ingot("server", "thaw", "--comment", "compared"); code != 0 {
		t.Fatalf("ingot server thaw: %d\n%s", code, out)
	}
	var last []string
	for _, m := range machines {
		last = append(last, rig.Reboot(t, c, m.ID, "new", rig.PatientTime).GetOperationId())
	}
	for i, m := range machines {
		rig.Ended(t, c.Wait(last[i], rig.Soon), rig.Succeeded, "")
		h := m.WaitQuiet(rig.Soon)
		for _, p := range h.Problems() {
			// Commands that the database has lost are known to the machine alone.
			if strings.Contains(p, "twice") {
				t.Error(p)
			}
		}
		reboots := 0
		for _, r := range m.Journal() {
			if r.OperationID == last[i] && r.Stage == sim.StageEffect && r.Kind == sim.KindReboot {
				reboots++
			}
		}
		if n := count(m); n != effects[m.ID]+reboots || reboots == 0 {
			t.Errorf("%s had %d effects, %d since, of the new reboot %d", m.ID, effects[m.ID], n-effects[m.ID], reboots)
		}
	}
}
