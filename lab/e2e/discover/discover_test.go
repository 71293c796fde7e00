package discover

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

const site, user, password = "r42", "admin", "s3cret-bmc"

// world is a controller, a site with the shipped agent, and BMCs on one port of the loopback network 127.65.0.0/28.
type world struct {
	*harness.Cluster
	t    *testing.T
	site *harness.Machine
	port int
	bmcs map[int]*bmc.Redfish
}

func newWorld(t *testing.T, cluster *harness.Cluster) *world {
	t.Helper()
	w := &world{Cluster: cluster, t: t, bmcs: map[int]*bmc.Redfish{}}
	l, err := net.Listen("tcp", "127.65.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	own, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w.site = w.NewSite(t, site, own, harness.MachineOptions{Change: func(cfg *agent.Config) {
		cfg.Providers = nil
		cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 20, BMCPoll: time.Second}
	}})
	w.site.WaitConnected()
	harness.Must(t, w.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{
		CredentialsRef: "rack42", Username: user, Password: password, AllowedEndpoints: []string{"127.65.0.0/29"},
	})
	return w
}

// add starts the n-th BMC, of a machine with a serial number and a MAC address of its own.
func (w *world) add(n int, serial, password string) *bmc.Redfish {
	w.t.Helper()
	b, err := bmc.StartRedfish(w.t.Context(), bmc.RedfishConfig{
		Chassis: &bmc.Memory{
			Info: bmc.About{
				Name:   fmt.Sprint(n),
				UUID:   fmt.Sprintf("6f1d2c3b-0000-4000-8000-0000000000%02x", n),
				Serial: serial,
				MACs:   []string{fmt.Sprintf("52:54:00:00:02:%02x", n)},
				Vendor: "Dell Inc.",
				Model:  "PowerEdge R650",
			},
		},
		Listen:   fmt.Sprintf("127.65.0.%d:%d", n, w.port),
		User:     user,
		Password: password,
		Shape:    bmc.IDRAC9,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	b.Misbehave(bmc.Faults{LockAfter: 3})
	w.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.bmcs[n] = b
	return b
}

// discover runs the command and wants words in what it prints.
func (w *world) discover(words []string, more ...string) string {
	w.t.Helper()
	code, out := w.Ingot(
		append([]string{"discover", "--bmc", "127.65.0.0/28", "--port", fmt.Sprint(w.port), "--credentials",
			"rack42", "--site", site}, more...)...)
	if code != 0 {
		w.t.Fatalf("exit code %d: %s", code, out)
	}
	for _, want := range words {
		if !strings.Contains(out, want) {
			w.t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	return out
}

func (w *world) machines() map[string]*baremetalv1.Machine {
	w.t.Helper()
	out := map[string]*baremetalv1.Machine{}
	for _, m := range harness.Must(w.t, w.Machines().ListMachines, &baremetalv1.ListMachinesRequest{}).GetMachines() {
		out[m.GetMachineId()] = m
	}
	return out
}

func TestAnAdminDiscoversARack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.New(t, harness.Options{}))
	for n, serial := range map[int]string{1: "SN-A", 2: "SN-B", 4: "SN-D", 5: "SN-D"} {
		w.add(n, serial, password)
	}
	locks := w.add(3, "SN-C", "another")
	outside := w.add(9, "SN-I", password)
	w.Register(&baremetalv1.Machine{MachineId: "old", Spec: &baremetalv1.MachineSpec{
		Site: site, MacAddresses: []string{"52:54:00:00:02:02"},
	}})

	dry := w.discover(
		[]string{"SN-A", "PowerEdge R650", "Would register r42-01", "SN-D is what", "refuses the credentials",
			"6 BMCs at 14 addresses"},
		"--register",
		"r42-",
		"--rack",
		"r42",
		"--dry-run",
	)
	if n := len(w.machines()); n != 1 || strings.Contains(dry, "Would register r42-02") {
		t.Errorf("%d machines after a dry run:\n%s", n, dry)
	}
	w.discover([]string{"Registered r42-01", "--select rack=r42,state=NEW"}, "--register", "r42-", "--rack", "r42")
	all := w.machines()
	spec := all["r42-01"].GetSpec()
	if len(all) != 2 || spec.GetBmcEndpoint() != fmt.Sprintf("redfish://127.65.0.1:%d", w.port) ||
		spec.GetBmcCredentialsRef() != "rack42" || spec.GetSerial() != "SN-A" || spec.GetRack() != "r42" ||
		len(spec.GetMacAddresses()) != 1 || spec.GetMacAddresses()[0] != "52:54:00:00:02:01" {
		t.Fatalf("registered: %v", all)
	}
	w.discover([]string{"There is nothing to register"}, "--register", "r42-")
	if n := len(w.machines()); n != 2 {
		t.Errorf("%d machines after a repeat", n)
	}

	if n := locks.Counts(); n.WrongPasswords != 1 || n.Locked {
		t.Errorf("three discoveries sent a wrong password so often: %+v", n)
	}
	if n := outside.Counts(); n.Sessions+n.WrongPasswords != 0 {
		t.Errorf("the password went where it is not for: %+v", n)
	}
	w.audited()
}

// audited wants a row for each discovery, without the password.
func (w *world) audited() {
	w.t.Helper()
	rows := 0
	for _, e := range harness.Must(w.t, w.Admin().ListAuditLog,
		&baremetalv1.ListAuditLogRequest{TargetId: site}).GetEntries() {
		if e.GetVerb() != "DISCOVER_BMCS" {
			continue
		}
		rows++
		data := string(e.GetEventData())
		if e.GetActor() != "tester" || !strings.Contains(data, `"networks": "127.65.0.0/28"`) ||
			!strings.Contains(data, "rack42") || !strings.Contains(data, "source_address") || strings.Contains(data, password) {
			w.t.Errorf("audit row %v", e)
		}
	}
	if rows != 3 {
		w.t.Errorf("%d rows in the audit log, want 3", rows)
	}
}

func TestARefusedDiscoverySaysWhatToDo(t *testing.T) {
	t.Parallel()
	first := harness.New(t, harness.Options{})
	w := newWorld(t, first)
	good := func() *baremetalv1.DiscoverBMCsRequest {
		return &baremetalv1.DiscoverBMCsRequest{Site: site, Networks: []string{"127.65.0.0/29"}, CredentialsRef: "rack42",
			Port: int32(w.port)}
	}
	ask := func(c *harness.Client, change func(*baremetalv1.DiscoverBMCsRequest)) error {
		r := good()
		change(r)
		_, err := c.Admin().DiscoverBMCs(t.Context(), r)
		return err
	}
	nothing := func(*baremetalv1.DiscoverBMCsRequest) {}
	if err := ask(w.Client, nothing); err != nil {
		t.Errorf("a network without BMCs: %v", err)
	}
	for name, change := range map[string]func(*baremetalv1.DiscoverBMCsRequest){
		"networks":        func(r *baremetalv1.DiscoverBMCsRequest) { r.Networks = []string{"10.0.0.0/21"} },
		"site":            func(r *baremetalv1.DiscoverBMCsRequest) { r.Site = "" },
		"credentials_ref": func(r *baremetalv1.DiscoverBMCsRequest) { r.CredentialsRef = "" },
		"port":            func(r *baremetalv1.DiscoverBMCsRequest) { r.Port = 70000 },
	} {
		err := ask(w.Client, change)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for reason, change := range map[string]func(*baremetalv1.DiscoverBMCsRequest){
		"SITE_NOT_FOUND":        func(r *baremetalv1.DiscoverBMCsRequest) { r.Site = "nowhere" },
		"CREDENTIALS_NOT_FOUND": func(r *baremetalv1.DiscoverBMCsRequest) { r.CredentialsRef = "none" },
	} {
		if err := ask(w.Client, change); !harness.HasReason(err, reason) {
			t.Errorf("want %s: %v", reason, err)
		}
	}
	other := first.Another(t, harness.Options{})
	if err := ask(other.Client, nothing); !harness.HasReason(err, "SITE_AGENT_ELSEWHERE") ||
		!strings.Contains(err.Error(), "--server") {
		t.Errorf("at another controller: %v", err)
	}
	if err := w.site.Stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, rig.Soon, func() bool {
		return harness.HasReason(ask(w.Client, nothing), "SITE_AGENT_UNAVAILABLE")
	}, "the session is over")
}

// TestADiscoveryEndsWithItsCaller: the agent stops when no caller waits any more, and works on one discovery at a time.
func TestADiscoveryEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.New(t, harness.Options{}))
	b := w.add(1, "SN-1", password)
	b.Misbehave(bmc.Faults{Slow: 4 * time.Second})
	request := &baremetalv1.DiscoverBMCsRequest{Site: site, Networks: []string{"127.65.0.1"}, CredentialsRef: "rack42",
		Port: int32(w.port)}
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := w.Admin().DiscoverBMCs(ctx, request); status.Code(err) != codes.Canceled {
			t.Errorf("the canceled discovery: %v", err)
		}
	})
	testkit.Eventually(t, rig.Soon, func() bool { return b.Counts().Requests > 0 }, "the BMC is asked")
	if _, err := w.Admin().DiscoverBMCs(t.Context(), request); !harness.HasReason(err, "DISCOVERY_UNDER_WAY") {
		t.Errorf("a second discovery: %v", err)
	}
	cancel()
	first.Wait()
	b.Misbehave(bmc.Faults{})
	testkit.Eventually(t, rig.Soon, func() bool {
		r, err := w.Admin().DiscoverBMCs(t.Context(), request)
		return err == nil && len(r.GetBmcs()) == 1 && r.GetBmcs()[0].GetProblem() == ""
	}, "the next discovery")
}
