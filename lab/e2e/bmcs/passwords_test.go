package bmcs

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) {
	bmc.MainIfControl()
	rig.Main(m)
}

const site, user, password = "r42", "admin", "s3cret-bmc"

// world is a controller and a site with the shipped agent, and BMCs that all have one password.
type world struct {
	*harness.Cluster
	t    *testing.T
	site *harness.Machine
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: harness.New(t, harness.Options{}), t: t}
	own, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w.site = w.NewSite(t, site, own, harness.MachineOptions{Supervised: true, Change: func(cfg *agent.Config) {
		cfg.Providers = nil
		cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 20, BMCPoll: time.Second}
	}})
	w.site.WaitConnected()
	harness.Must(t, w.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{
		CredentialsRef: "rack42", Username: user, Password: password, AllowedEndpoints: []string{"127.0.0.0/8"},
	})
	return w
}

func chassis(n int) *bmc.Memory {
	return &bmc.Memory{Info: bmc.About{Name: fmt.Sprint(n), UUID: fmt.Sprintf("6f1d2c3b-0000-4000-8000-0000000000%02x", n),
		Serial: fmt.Sprintf("SN-%d", n), MACs: []string{mac(n)}}}
}

func mac(n int) string { return fmt.Sprintf("52:54:00:00:03:%02x", n) }

// machine registers the n-th machine, which is on.
func (w *world) machine(n int, c *bmc.Memory, endpoint string) string {
	w.t.Helper()
	if err := c.SetPower(w.t.Context(), bmc.PowerOn); err != nil {
		w.t.Fatal(err)
	}
	id := fmt.Sprintf("m-%d", n)
	w.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
		Site: site, Rack: "r42", MacAddresses: []string{mac(n)}, BmcEndpoint: endpoint, BmcCredentialsRef: "rack42",
	}})
	return id
}

func (w *world) redfish(n int, shape bmc.Shape) (id string, b *bmc.Redfish, c *bmc.Memory) {
	w.t.Helper()
	c = chassis(n)
	b, err := bmc.StartRedfish(w.t.Context(), bmc.RedfishConfig{Chassis: c, Listen: "127.0.0.1:0", User: user,
		Password: password, Shape: shape})
	if err != nil {
		w.t.Fatal(err)
	}
	b.Misbehave(bmc.Faults{LockAfter: 3})
	w.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return w.machine(n, c, b.Endpoint()), b, c
}

func (w *world) ipmi(n int) (id string, c *bmc.Memory) {
	w.t.Helper()
	c = chassis(n)
	b, err := bmc.StartIPMI(w.t.Context(), bmc.IPMIConfig{Chassis: c, Dir: testkit.TempDir(w.t),
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: user, Password: password})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return w.machine(n, c, b.Endpoint()), c
}

func (w *world) ingot(want int, args ...string) string {
	w.t.Helper()
	code, out := w.Ingot(args...)
	if code != want {
		w.t.Fatalf("ingot %s: exit code %d, want %d: %s", strings.Join(args, " "), code, want, out)
	}
	return out
}

// off switches a machine off through its BMC.
func (w *world) off(id string, c *bmc.Memory) {
	w.t.Helper()
	rig.Maintenance(w.t, w.Client, id)
	w.ingot(0, "power", "off", id)
	if state, err := c.PowerState(w.t.Context()); err != nil || state != bmc.Off {
		w.t.Errorf("%s: power is %v, %v", id, state, err)
	}
}

func TestAnAdminRotatesThePasswordsOfARack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shapes := []bmc.Shape{{}, bmc.IDRAC9, bmc.ThinkSystem}
	var bmcs []*bmc.Redfish
	var memories []*bmc.Memory
	for i, shape := range shapes {
		_, b, c := w.redfish(i+1, shape)
		bmcs, memories = append(bmcs, b), append(memories, c)
	}
	overIPMI, ipmiMemory := w.ipmi(4)

	if preview := w.ingot(
		0,
		"bmc",
		"rotate-password",
		"--select",
		"rack=r42",
		"--dry-run",
	); !strings.Contains(
		preview,
		"4",
	) {
		t.Errorf("a dry run: %s", preview)
	}
	for range 2 { // the second one changes passwords that are the machines' own
		for _, line := range rig.Tasks(t)[rig.PasswordTask] { // as on the page of common tasks
			w.ingot(0, rig.Words(line)[1:]...)
		}
	}
	seen := map[string]bool{password: true}
	for i, b := range bmcs {
		now := b.Password()
		if n := b.Counts(); n.PasswordChanges != 2 || n.WrongPasswords != 0 || seen[now] || !strong(now) {
			t.Errorf("BMC %d: %+v, a strong one: %t, another's: %t", i+1, n, strong(now), seen[now])
		}
		seen[now] = true
		w.hides(now)
	}
	if out := w.ingot(0, "bmc", "credentials", "list"); !strings.Contains(out, "machines with their own password: 4") {
		t.Errorf("the list of credentials: %s", out)
	}
	w.off("m-1", memories[0])
	w.off("m-3", memories[2])
	w.off(overIPMI, ipmiMemory)
	for i, b := range bmcs {
		if n := b.Counts(); n.WrongPasswords != 0 {
			t.Errorf("BMC %d got a wrong password: %+v", i+1, n)
		}
	}
}

// strong is what policies of BMCs ask for.
func strong(p string) bool {
	for _, class := range []string{"[A-Z]", "[a-z]", "[0-9]", "[-_.+=]"} {
		if !regexp.MustCompile(class).MatchString(p) {
			return false
		}
	}
	return len(p) == 16
}

// hides wants the password in no answer, and in no file of the agent.
func (w *world) hides(secret string) {
	w.t.Helper()
	for _, e := range harness.Must(w.t, w.Admin().ListAuditLog, &baremetalv1.ListAuditLogRequest{}).GetEntries() {
		if strings.Contains(e.String(), secret) {
			w.t.Errorf("the audit log has the password: %s", e.GetVerb())
		}
	}
	for _, op := range w.OperationsOf("m-1") {
		if strings.Contains(op.String(), secret) {
			w.t.Error("an operation has the password")
		}
	}
	err := filepath.WalkDir(w.site.StateDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), secret) {
			w.t.Errorf("%s has the password", d.Name())
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// TestACrashLosesNoPassword: the agent dies before the request to the BMC, after it, and before the report to the
// controller.
func TestACrashLosesNoPassword(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		point string
		wrong int
	}{{"bmc.before-password", 1}, {"bmc.after-password", 1}, {"bmc.before-settle", 0}} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id, b, memory := w.redfish(i+1, bmc.Shape{})
			rig.AtPoint(w.site, c.point, nil)
			w.ingot(0, "bmc", "rotate-password", id)
			if w.site.Crashes() != 1 {
				t.Errorf("the agent died %d times", w.site.Crashes())
			}
			if n := b.Counts(); n.PasswordChanges != 1 || n.WrongPasswords > c.wrong || b.Takes(password) {
				t.Errorf("counts %+v", n)
			}
			w.off(id, memory)
			if n := b.Counts(); n.WrongPasswords > c.wrong {
				t.Errorf("then: %+v", n)
			}
		})
	}
}

// TestALostMemoryLosesNoPassword: the agent has lost its memory, the outcome is unknown, and the next change finds the
// password.
func TestALostMemoryLosesNoPassword(t *testing.T) {
	t.Parallel()
	for i, point := range []string{"bmc.before-password", "bmc.after-password", "bmc.before-settle"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id, b, memory := w.redfish(i+1, bmc.Shape{})
			rig.AtPoint(w.site, point, w.site.ForgetEverything)
			w.ingot(5, "bmc", "rotate-password", id)
			if out := w.ingot(0, "bmc", "credentials", "list"); !strings.Contains(out, "changes that are open: "+id) {
				t.Errorf("the list of credentials: %s", out)
			}
			command := w.Machine(id).GetStatus().GetUnresolvedCommandId()
			harness.Must(t, w.Admin().SettleCommand, &baremetalv1.SettleCommandRequest{
				MachineId: id, CommandId: command, Verdict: "did_not_happen", Comment: "to be found out",
			})
			w.ingot(0, "bmc", "unpark", id)
			w.ingot(0, "bmc", "rotate-password", id)
			if n := b.Counts(); n.PasswordChanges != 1 || n.Locked || b.Takes(password) {
				t.Errorf("counts %+v", n)
			}
			w.off(id, memory)
		})
	}
}

// TestARefusedRotationChangesNothing, and returns the reason.
func TestARefusedRotationChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, shared, _ := w.redfish(1, bmc.Shape{})
	w.machine(2, chassis(2), shared.Endpoint()+"/redfish/v1/Systems/2")
	_, none, memory := w.redfish(3, bmc.SushyTools)
	_, strict, _ := w.redfish(4, bmc.Shape{Accounts: bmc.Accounts{Longest: 8}})
	w.Register(&baremetalv1.Machine{MachineId: "m-5", Spec: &baremetalv1.MachineSpec{Site: site}})
	for id, want := range map[string]string{
		"m-1": "BMC_SHARED", "m-3": "CAPABILITY_MISSING", "m-4": "BMC_PASSWORD_REFUSED", "m-5": "NO_BMC",
	} {
		if code, out := w.Ingot("bmc", "rotate-password", id); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %s", id, code, out)
		}
	}
	for _, b := range []*bmc.Redfish{shared, none, strict} {
		if n := b.Counts(); n.PasswordChanges+n.WrongPasswords != 0 || !b.Takes(password) {
			t.Errorf("changed: %+v", n)
		}
	}
	w.off("m-3", memory)

	secret, err := auth.AddToken(w.TokensFile(), "operator", access.ScopeOperate)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	operator := w.WithToken(secret)
	for _, args := range [][]string{{"m-4"}, {"--select", "rack=r42", "--yes"}} {
		if code, out := operator.Ingot(append([]string{"bmc", "rotate-password"}, args...)...); code == 0 ||
			!strings.Contains(out, "SCOPE_TOO_SMALL") {
			t.Errorf("an operator: exit code %d, %s", code, out)
		}
	}
}

// TestAPasswordFollowsTheCredentialsThatAreNamed: others end its use, the same again bring it back.
func TestAPasswordFollowsTheCredentialsThatAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, b, memory := w.redfish(1, bmc.Shape{})
	w.ingot(0, "bmc", "rotate-password", id)
	own := b.Password()
	harness.Must(t, w.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{
		CredentialsRef: "spare", Username: user, Password: "set by hand 1", AllowedEndpoints: []string{"127.0.0.1"},
	})
	b.SetPassword("set by hand 1")
	w.ingot(0, "machine", "update", id, "--bmc-credentials", "spare")
	w.ingot(0, "bmc", "unpark", id)
	w.off(id, memory)
	b.SetPassword(own)
	w.ingot(0, "machine", "update", id, "--bmc-credentials", "rack42")
	w.ingot(0, "bmc", "unpark", id)
	w.ingot(0, "power", "on", id)
	if n := b.Counts(); n.Locked {
		t.Errorf("locked: %+v", n)
	}
}
