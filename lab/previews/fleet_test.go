package previews_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// machinesPerFleet: one pair of a preview and its call is tried on each machine, since the call changes it.
const machinesPerFleet = 10

// world is a random fleet, with agents that do what they are asked.
type world struct {
	*publictest.Rig
	rand     *rand.Rand
	agents   map[string]*simAgent
	machines []*machine
	// frozen reports whether the fleet was frozen after its work had begun.
	frozen bool
}

// machine is one of the fleet.
type machine struct {
	id, provider, mac string
	simulated         bool
}

// simAgent is an agent of the fleet; one that is not connected has no epoch.
type simAgent struct {
	storetest.Enrolled
	machine   *machine
	site      string
	state     string
	boot      string
	caps      []string
	simulated bool
	epoch     int64
	seq       uint64
}

func (w *world) oneOf(words ...string) string { return words[w.rand.IntN(len(words))] }

func (w *world) chance(percent int) bool { return w.rand.IntN(100) < percent }

// some returns a random part of the words; each is in it with the chance, in percent.
func (w *world) some(percent int, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(string) bool { return !w.chance(percent) })
}

func (w *world) exec(sql string) { w.T.Helper(); storetest.Exec(w.T, w.Store, sql) }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{Rig: publictest.NewRig(t), rand: rand.New(rand.NewPCG(seed, 1)), agents: map[string]*simAgent{}}
	storetest.Lease(t, w.Store)
	w.catalogue()
	w.sites()
	for i := range machinesPerFleet {
		w.machine(i)
	}
	if w.chance(20) {
		w.budget()
	}
	return w
}

// catalogue fills the image catalogue: with nothing, with systems alone, or with installers of some architecture too.
func (w *world) catalogue() {
	const add = `INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes, file_size_bytes,
		minimum_disk_bytes, created_at) VALUES `
	if w.chance(70) {
		w.exec(add + `('tiny', 'os', 'amd64', 'raw.zst', 'cc', 'dd', 100, 10, 200, now()),
			('arm', 'os', 'arm64', 'raw.zst', 'ce', 'de', 100, 10, 200, now())`)
	}
	for _, arch := range w.some(50, "amd64", "arm64") {
		w.exec(
			add + fmt.Sprintf(`('kernel-%[1]s', 'installer-kernel', '%[1]s', 'raw', 'a%[1]s', 'aa', 1, 1, 0, now())`, arch),
		)
		if w.chance(85) {
			w.exec(add + fmt.Sprintf(`('initrd-%[1]s', 'installer-initrd', '%[1]s', 'raw', 'b%[1]s', 'bb', 1, 1, 0, now())`,
				arch))
		}
	}
}

// sites are one that serves a network, one that serves none, and one without an agent.
func (w *world) sites() {
	w.exec(`INSERT INTO sites (site, segments) VALUES
		('served', '[{"name": "seg", "interface": "eth1", "address": "10.20.0.1/24"}]'), ('bare', '[]'), ('empty', '[]')`)
	for _, site := range []string{"served", "bare"} {
		a := w.enrol("site-"+site, agentstore.NewToken{TokenID: "t-" + site, Role: "site", Site: site}, nil)
		a.site = site
		a.caps = append([]string{"netboot", "power", "reboot"},
			w.some(75, "provider:agent", "provider:maas", "cluster", "ssh", "bmc-password")...)
		if w.chance(85) {
			w.connect(a)
		}
	}
	if w.chance(50) {
		if _, err := w.Store.Credentials.SetMAASRegion(w.T.Context(), credentialstore.MAASRegion{Ref: "default",
			Endpoint: "http://127.0.0.1:1/MAAS", Sealed: []byte("key")}, "tester", storetest.Now()); err != nil {
			w.T.Fatal(err)
		}
	}
	if w.chance(50) {
		storetest.SetCluster(w.T, w.Store, "known")
	}
	w.exec(`INSERT INTO bmc_credentials (credentials_ref, sealed, version, updated_at, allowed_endpoints)
		VALUES ('stored', 's', 1, now(), '{10.0.0.0/8}')`)
}

func (w *world) enrol(name string, token agentstore.NewToken, m *machine) *simAgent {
	w.T.Helper()
	a := &simAgent{Enrolled: storetest.Enrol(w.T, w.Store, token), machine: m, state: "st-" + name, boot: "boot-" + name}
	w.agents[a.ID] = a
	return a
}

// connect opens a session of the agent, and tells the operations that it concerns.
func (w *world) connect(a *simAgent) {
	w.T.Helper()
	h := a.Hello(a.state, a.boot)
	h.Capabilities, h.Simulated, h.LastGrantSeq = a.caps, a.simulated, a.seq
	o := storetest.Open(w.T, w.Store, h)
	a.epoch++
	for _, id := range o.Operations {
		storetest.Decide(w.T, w.Store, id, operation.SessionOpened{AgentID: a.ID, StateID: a.state, BootID: a.boot,
			OfTarget: a.machine != nil})
	}
}

// machine makes a machine of a random kind, and brings it somewhere by calls that any client may make.
func (w *world) machine(i int) {
	m := &machine{id: fmt.Sprintf("m-%d", i), provider: w.oneOf("agent", "agent", "agent", "agent", "maas", "fake"),
		mac: fmt.Sprintf("52:54:00:00:00:%02x", i)}
	spec := &pb.MachineSpec{Provider: m.provider, Site: w.oneOf("served", "served", "bare", "empty"),
		MacAddresses: []string{m.mac}}
	if w.chance(60) {
		spec.BmcEndpoint = w.oneOf("", "ipmi://") + fmt.Sprintf("10.20.0.%d", 9+i)
		spec.BmcCredentialsRef = w.oneOf("", "stored", "unknown")
	}
	spec.DefaultImageRef = w.oneOf("", "", "tiny")
	spec.TargetClusterRef = w.oneOf("", "known", "other")
	spec.InstallDisk = w.oneOf("", "serial=QM1", "serial=QM2")
	w.Register(&pb.Machine{MachineId: m.id, Labels: map[string]string{"rack": w.oneOf("a", "b")}, Spec: spec})
	w.machines = append(w.machines, m)
	if w.chance(75) {
		w.host(m)
	}
	if w.chance(80) {
		w.Maintenance(m.id)
	}
	if w.chance(12) {
		w.exec(`INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition)
			VALUES ('` + m.id + `', 'InCustomerCluster', true, 'x', '', now())`)
	}
	w.history(m)
}

// host enrols an agent of the machine's own.
func (w *world) host(m *machine) {
	a := w.enrol(m.id, agentstore.NewToken{TokenID: "t-" + m.id, MachineID: m.id}, m)
	a.simulated = w.chance(60)
	m.simulated = a.simulated
	a.caps = w.some(85, "reboot", "netboot", "reconfig", "join")
	if a.simulated {
		a.caps = append(a.caps, w.some(85, "repave", "erase", "reset_devices", "test_hardware")...)
	} else {
		a.caps = append(a.caps, w.some(40, "kexec", "test_hardware")...)
	}
	w.connect(a)
	arch := w.oneOf("amd64", "amd64", "arm64")
	doc := fmt.Sprintf(
		`{"system": {"serial": "sn-%s"}, "cpu": {"architecture": %q}, "disks": [{"name": "sda", "serial": "QM1",
		"size_bytes": 1073741824}], "nics": [{"name": "eth0", "mac": %q}]}`,
		m.id,
		arch,
		m.mac,
	)
	if w.chance(60) {
		k := sessionstore.EventKey{AgentID: a.ID, StateID: a.state, Seq: 1}
		if err := w.Store.Sessions.InventoryEvent(w.T.Context(), k, m.id, "h", []byte(doc), false,
			storetest.Now()); err != nil {
			w.T.Fatal(err)
		}
		if _, err := w.Store.NodeStates.AdmitHealthy(w.T.Context(), storetest.Now()); err != nil {
			w.T.Fatal(err)
		}
	}
	if w.chance(20) {
		w.exec(`UPDATE agent_sessions SET ended_at = now() WHERE agent_id = '` + a.ID + `'`)
		a.epoch = 0
	}
}

// history is what has been done to a machine before: flags, moves, work that is under way, and workflows that failed.
// What a call refuses did not happen.
func (w *world) history(m *machine) {
	ctx := w.T.Context()
	switch w.rand.IntN(12) {
	case 0:
		_, _ = w.Store.Operations.SetFlag(ctx, m.id, w.oneOf("RMA", "Retired"), true, "admin", "", storetest.Now())
	case 1:
		_, _ = w.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: m.id, RequestId: "busy"})
	case 2, 3:
		to := w.oneOf("QUARANTINED", "RETIRED", "OFFLINE", "PENDING", "DRAINING", "ACTIVE", "BOOTSTRAP_ISSUED")
		_, _ = w.Nodes.TransitionNode(ctx, &pb.TransitionNodeRequest{NodeId: m.id, RequestId: "moved", Force: true,
			Comment: "before", State: pb.NodeState(pb.NodeState_value["NODE_STATE_"+to])})
	case 4, 5, 6:
		v := w.workflowVerb()
		r := v.start(m.id, "before", false)
		r.EnterMaintenance = true
		if op, err := w.Workflows.StartWorkflow(ctx, r); err == nil {
			w.drive(op.GetOperationId(), w.rand.IntN(5)+1)
		}
	}
}

func (w *world) budget() {
	b := &pb.Budget{Name: "b", Domain: w.oneOf("fleet", "site", "label:rack"), AtOnce: int32(w.rand.IntN(2) + 1)}
	if _, err := w.Budgets.SetBudget(w.T.Context(), &pb.SetBudgetRequest{Budget: b}); err != nil {
		w.T.Fatal(err)
	}
}
