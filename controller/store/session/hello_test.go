package session_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// replica writes rows that no history leads to: triggers and references are off.
func replica(t *testing.T, s *store.Store, sql string, args ...any) {
	t.Helper()
	conn, err := s.DB.Pool().Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	for _, statement := range []struct {
		sql  string
		args []any
	}{{"SET session_replication_role = replica", nil}, {sql, args}, {"RESET session_replication_role", nil}} {
		if _, err := conn.Exec(t.Context(), statement.sql, statement.args...); err != nil {
			t.Fatalf("%s: %v", statement.sql, err)
		}
	}
}

// A hello is stored field by field, of the agent, of its session and of its machine, and answered with what was known.
func TestAHelloIsStored(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a := inService(t, s, "m-1")
	at := storetest.Now()
	h := sessionstore.Hello{
		AgentID: a.ID, Fingerprint: a.Fingerprint, SessionID: "s-2", ControllerID: "c-2", Version: "v-2",
		Capabilities: []string{"reboot", "erase"}, Simulated: true, BootID: "boot-2", HardwareFingerprint: "hw-2",
		StateID: "st-2", ImageDigest: "sha256:2", LockedReason: "hands off", LastGrantSeq: 3, LastEventSeq: 4,
	}
	before, err := s.Agents.GetAgent(t.Context(), a.ID)
	must(t, err)
	got, err := s.Sessions.OpenSession(t.Context(), h, at)
	want := sessionstore.Opened{Epoch: 2, Role: "host", MachineID: "m-1", Site: before.GetSite(), PreviousHardware: "hw"}
	if err != nil || got.Operations != nil || got.Epoch != want.Epoch || got.Role != want.Role ||
		got.MachineID != want.MachineID || got.Site != want.Site || got.PreviousHardware != want.PreviousHardware ||
		got.RolledBack || got.Cloned || got.LastEventSeq != 0 || got.PreviousEventSeq != 0 {
		t.Errorf("opened: %+v, %v, want %+v", got, err, want)
	}
	agent := proto.CloneOf(before)
	agent.Epoch, agent.Version, agent.Capabilities, agent.Simulated = 2, "v-2", h.Capabilities, true
	agent.BootId, agent.StateId, agent.ControllerId = "boot-2", "st-2", "c-2"
	agent.LockedReason = "locked by the local operator"
	agent.SessionStartedAt, agent.LastHeartbeatAt, agent.Connected = timestamppb.New(at), timestamppb.New(at), true
	if after, err := s.Agents.GetAgent(t.Context(), a.ID); err != nil || !proto.Equal(after, agent) {
		t.Errorf("the agent is %v, %v, want %v", after, err, agent)
	}
	if n := storetest.Count(t, s, `SELECT count(*) FROM agent_sessions s JOIN agents a USING (agent_id)
		WHERE s.session_id = 's-2' AND s.epoch = 2 AND s.controller_id = 'c-2' AND s.fingerprint = $1 AND s.state_id = 'st-2'
		AND s.boot_id = 'boot-2' AND s.started_at = $2 AND s.ended_at IS NULL AND a.hardware_fingerprint = 'hw-2'
		AND a.os_image_digest = 'sha256:2'`, a.Fingerprint, at); n != 1 {
		t.Errorf("%d sessions are what was said", n)
	}
	m := storetest.Machine(t, s, "m-1").GetStatus()
	if m.GetAgentId() != a.ID || m.GetBootId() != "boot-2" || !m.GetSimulated() {
		t.Errorf("the machine is %v", m)
	}
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Reachable); c.GetReason() != "SessionOpen" {
		t.Errorf("it is reachable by %v", c)
	}
	for locked, reason := range map[bool]string{false: "", true: "locked by the local operator"} {
		must(t, s.Sessions.SetAgentLocked(t.Context(), a.ID, locked))
		if got, err := s.Agents.GetAgent(t.Context(), a.ID); err != nil || got.GetLockedReason() != reason {
			t.Errorf("locked %t: %q, %v", locked, got.GetLockedReason(), err)
		}
	}
}

// A hello is refused where the agent, its machine or its certificate no longer stands, and changes nothing then.
func TestRefusedHellos(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	sql := func(statement string) func(storetest.Enrolled, *sessionstore.Hello) {
		return func(a storetest.Enrolled, _ *sessionstore.Hello) { replica(t, s, statement, a.ID) }
	}
	says := func(change func(*sessionstore.Hello)) func(storetest.Enrolled, *sessionstore.Hello) {
		return func(_ storetest.Enrolled, h *sessionstore.Hello) { change(h) }
	}
	const unknown, revoked = "CERTIFICATE_UNKNOWN", "CERTIFICATE_REVOKED"
	other, machines := inService(t, s, "m-other"), 0
	for name, c := range map[string]struct {
		change func(storetest.Enrolled, *sessionstore.Hello)
		reason string
	}{
		"an agent that is none":       {says(func(h *sessionstore.Hello) { h.AgentID = "ag-none" }), unknown},
		"a certificate that is none":  {says(func(h *sessionstore.Hello) { h.Fingerprint = "fp-none" }), unknown},
		"another agent's certificate": {says(func(h *sessionstore.Hello) { h.Fingerprint = other.Fingerprint }), unknown},
		"a revoked certificate":       {sql("UPDATE agent_certs SET revoked_at = now() WHERE agent_id = $1"), revoked},
		"a replaced certificate":      {sql("UPDATE agent_certs SET replaced_at = now() WHERE agent_id = $1"), revoked},
		"a deleted machine": {sql(`UPDATE machines SET deleted_at = now()
			WHERE machine_id = (SELECT machine_id FROM agents WHERE agent_id = $1)`), revoked},
		"an installer without work": {sql("UPDATE agents SET role = 'installer' WHERE agent_id = $1"), revoked},
		"a hello like any other":    {says(func(*sessionstore.Hello) {}), ""},
	} {
		machines++
		a := inService(t, s, fmt.Sprint("m-", machines))
		h := a.Hello("st-1", "boot-1")
		c.change(a, &h)
		tables := []string{"agents", "agent_sessions", "agent_states", "agent_boots", "machines", "machine_conditions"}
		before := storetest.Everything(t, s, tables...)
		_, err := s.Sessions.OpenSession(t.Context(), h, storetest.Now())
		after := storetest.Everything(t, s, tables...)
		if c.reason == "" {
			if err != nil || after == before {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		storetest.WantReason(t, err, c.reason)
		if after != before {
			t.Errorf("%s: something has changed", name)
		}
	}
}

// The first session under a certificate replaces the agent's older ones, and none that is newer or another agent's.
func TestACertificateThatIsUsedReplacesOlderOnes(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, other := inService(t, s, "m-1"), inService(t, s, "m-2")
	at := storetest.Now()
	for name, age := range map[string]time.Duration{"older": time.Minute, "newer": -time.Minute} {
		replica(t, s, `INSERT INTO agent_certs SELECT c.* FROM agent_certs o CROSS JOIN LATERAL jsonb_populate_record(o,
			jsonb_build_object('fingerprint', $1::text, 'issued_at', $2::timestamptz)) c WHERE o.fingerprint = $3`, name,
			at.Add(-age), a.Fingerprint)
	}
	replica(t, s, "UPDATE agent_certs SET first_used_at = NULL, issued_at = $1 WHERE fingerprint = $2", at, a.Fingerprint)
	replica(t, s, "UPDATE agent_certs SET issued_at = $1 WHERE fingerprint = $2", at.Add(-time.Hour), other.Fingerprint)
	certs := func() string { return storetest.Everything(t, s, "agent_certs") }
	open := func(now time.Time) {
		t.Helper()
		_, err := s.Sessions.OpenSession(t.Context(), a.Hello("st-1", "boot-1"), now)
		must(t, err)
	}
	open(at.Add(time.Second))
	rows := map[string]bool{a.Fingerprint: false, "older": true, "newer": false, other.Fingerprint: false}
	for fingerprint, replaced := range rows {
		if n := storetest.Count(
			t,
			s,
			"SELECT count(*) FROM agent_certs WHERE fingerprint = $1 AND replaced_at = $2",
			fingerprint,
			at.Add(time.Second),
		); (n == 1) != replaced {
			t.Errorf("%s is replaced: %t, want %t", fingerprint, n == 1, replaced)
		}
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM agent_certs WHERE fingerprint = $1 AND first_used_at = $2",
		a.Fingerprint, at.Add(time.Second)); n != 1 {
		t.Error("the time of its first use is not recorded")
	}
	replica(t, s, "UPDATE agent_certs SET replaced_at = NULL")
	before := certs()
	if open(at.Add(time.Minute)); certs() != before {
		t.Error("a certificate that was used before changes something")
	}
}

// An agent's memory is an older copy if it has counted fewer grants or fewer events than were seen of it. Of a memory
// that it has given up the answer has the last event.
func TestMemoriesAreCompared(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a := inService(t, s, "m-1")
	replica(t, s, "UPDATE agent_states SET last_grant_seq = 5, last_event_seq = 7 WHERE agent_id = $1", a.ID)
	replica(
		t,
		s,
		`INSERT INTO agent_states (agent_id, state_id, first_seen_at, last_event_seq) VALUES ($1, '', now(), 99)`,
		a.ID,
	)
	for _, c := range []struct {
		state, previous string
		grants, events  uint64
		rolledBack      bool
		last, before    uint64
	}{
		{"st-1", "", 5, 7, false, 7, 0},
		{"st-1", "", 6, 8, false, 7, 0},
		{"st-1", "", 4, 7, true, 7, 0},
		{"st-1", "", 5, 6, true, 7, 0},
		{"st-2", "", 0, 0, false, 0, 0},
		{"st-2", "st-1", 0, 0, false, 0, 7},
		{"st-2", "st-unknown", 0, 0, false, 0, 0},
	} {
		h := a.Hello(c.state, "boot-1")
		h.PreviousStateID, h.LastGrantSeq, h.LastEventSeq = c.previous, c.grants, c.events
		if o := storetest.Open(t, s, h); o.RolledBack != c.rolledBack || o.LastEventSeq != c.last ||
			o.PreviousEventSeq != c.before {
			t.Errorf("%+v: %+v", c, o)
		}
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM agent_states WHERE agent_id = $1 AND state_id = 'st-unknown'",
		a.ID); n != 0 {
		t.Error("a memory that was given up and never seen is recorded")
	}
}

// A memory that was given up is looked up in a crowd, too.
func TestAMemoryThatWasGivenUpInACrowd(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	var hellos []sessionstore.Hello
	for i := range 20 {
		a := inService(t, s, fmt.Sprintf("m-%02d", i))
		replica(
			t,
			s,
			"INSERT INTO agent_states (agent_id, state_id, first_seen_at, last_event_seq) VALUES ($1, 'st-0', now(), 9)",
			a.ID,
		)
		h := a.Hello("st-1", "boot-1")
		h.PreviousStateID = "st-0"
		hellos = append(hellos, h)
	}
	for i, err := range storetest.Together(t, len(hellos), func(ctx context.Context, i int) error {
		o, err := s.Sessions.OpenSession(ctx, hellos[i], storetest.Now())
		if err == nil && o.PreviousEventSeq != 9 {
			return fmt.Errorf("the last event is %d", o.PreviousEventSeq)
		}
		return err
	}) {
		if err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	}
}

// A session names the operations that it may move on, each once and the oldest first: those on the agent's machine, and
// those with commands for it. A site's agent is named those that wait for it, too.
func TestOperationsOfASession(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	site := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	elsewhere := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-lab", Role: "site", Site: "lab"})
	started := map[string]string{}
	hosts := map[string]storetest.Enrolled{}
	for i, id := range []string{"m-waits", "m-busy", "m-both", "m-done"} {
		hosts[id] = storetest.Live(t, s, id)
		started[id] = storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "r",
			Type: fleet.Reboot}).GetOperationId()
		replica(t, s, "UPDATE operations SET created_at = created_at - $1 * interval '1 minute' WHERE operation_id = $2", i,
			started[id])
	}
	command := func(id string) {
		t.Helper()
		storetest.Decide(t, s, started[id], operation.Evaluate{})
		replica(t, s, "UPDATE commands SET executor_id = $1 WHERE operation_id = $2", site.ID, started[id])
	}
	command("m-busy")
	command("m-both")
	replica(
		t,
		s,
		`UPDATE operations SET wait_reason = 'WAITING_FOR_SITE' WHERE target_id IN ('m-waits', 'm-both', 'm-done')`,
	)
	storetest.Decide(t, s, started["m-done"], operation.CancelAsked{Actor: "tester"})
	replica(t, s, `UPDATE operations SET wait_reason = 'WAITING_FOR_SITE' WHERE target_id = 'm-done'`)
	open := func(a storetest.Enrolled) []string {
		t.Helper()
		return storetest.Open(t, s, a.Hello("st-1", "boot-1")).Operations
	}
	for who, c := range map[string]struct {
		of   storetest.Enrolled
		want []string
	}{
		"the site's agent":      {site, []string{started["m-both"], started["m-busy"], started["m-waits"]}},
		"another site's":        {elsewhere, nil},
		"a host's":              {hosts["m-waits"], []string{started["m-waits"]}},
		"a host's without work": {hosts["m-done"], nil},
	} {
		if got := open(c.of); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", who, got, c.want)
		}
	}
}

// The session of a machine's own agent moves its node on where that is what the node waits for, unless an onboarding
// decides. The site's agent moves none.
func TestASessionMovesTheNode(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	_, err := s.Nodes.SetNodeGroup(t.Context(), &baremetalv1.SetNodeGroupRequest{Group: "strict",
		HealthChecks: []string{node.CheckInventory}}, "tester", storetest.Now())
	must(t, err)
	moves := map[node.State]node.State{node.BootstrapIssued: node.Active, node.Enrolling: node.Active,
		node.Offline: node.Active}
	for i, from := range node.States() {
		if from == node.Deleted {
			continue
		}
		for _, c := range []struct {
			name  string
			spec  string // of a machine whose checks do not pass
			held  bool
			stays bool
		}{
			{"alone", "{}", false, false},
			{"unhealthy", `{"group": "strict", "serial": "SN-1"}`, false, from != node.Offline},
			{"onboarded", "{}", true, from != node.Offline},
		} {
			id := fmt.Sprintf("m-%d-%s", i, c.name)
			a := inService(t, s, id)
			replica(t, s, "UPDATE machines SET node_state = $1, spec = spec || $2::jsonb WHERE machine_id = $3", node.Name(from),
				c.spec, id)
			if c.held {
				replica(
					t,
					s,
					`INSERT INTO workflows (workflow_id, machine_id, kind, mode, state, plan, stage, request_id, created_at,
					updated_at) VALUES ($1, $1, 'ONBOARDING', '', 'RUNNING', '{}', '', '', now(), now())`,
					id,
				)
			}
			storetest.Open(t, s, a.Hello("st-1", "boot-1"))
			want := from
			if to, ok := moves[from]; ok && !c.stays {
				want = to
			}
			if got := storetest.State(t, s, id); got != node.Name(want) {
				t.Errorf("%s, %s: it is %s, want %s", node.Name(from), c.name, got, node.Name(want))
			}
		}
	}
}

// A site's agent, and an installer, change nothing of a machine's own agent.
func TestSessionsThatAreNotTheMachinesOwn(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, op, _ := storetest.Rebooting(t, s, "m-1")
	own := storetest.Machine(t, s, "m-1").GetStatus()
	site := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	before := storetest.Everything(t, s, "machines", "machine_conditions")
	for _, machine := range []string{"", "m-1"} { // the second was enrolled for a machine, too
		replica(t, s, "UPDATE agents SET machine_id = nullif($1, '') WHERE agent_id = $2", machine, site.ID)
		if o := storetest.Open(t, s, site.Hello("st-s", "boot-s")); o.Role != "site" || o.MachineID != machine ||
			o.Site != "default" {
			t.Errorf("the site's agent: %+v", o)
		}
		if after := storetest.Everything(t, s, "machines", "machine_conditions"); after != before {
			t.Errorf("the site's agent changes a machine: %q", machine)
		}
	}
	installer := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-ram", MachineID: "m-1"})
	replica(t, s, "UPDATE agents SET role = 'installer', operation_id = $1 WHERE agent_id = $2", op, installer.ID)
	replica(t, s, "UPDATE machines SET agent_id = $1 WHERE machine_id = 'm-1'", a.ID)
	replica(t, s, "UPDATE machine_conditions SET status = false WHERE type = 'Reachable'")
	o := storetest.Open(t, s, installer.Hello("st-r", "boot-ram"))
	if o.Role != "installer" || o.MachineID != "m-1" || !slices.Equal(o.Operations, []string{op}) {
		t.Errorf("the installer: %+v", o)
	}
	m := storetest.Machine(t, s, "m-1")
	if m.GetStatus().GetBootId() != "boot-ram" || m.GetStatus().GetAgentId() != own.GetAgentId() ||
		storetest.Condition(m, fleet.Reachable) != nil {
		t.Errorf("the machine is %v", m.GetStatus())
	}
}

// A machine that comes back has its agent's faults known again; one that was in service all the time has not been
// silent. Another boot of its own agent cures what a boot cures.
func TestWhatASessionOfTheMachineCures(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	for i, c := range []struct {
		state, boot, agent string
		known, cured       bool
	}{
		{"offline", "boot-1", "", true, false},
		{"offline", "boot-2", "", true, true},
		{"active", "boot-1", "", false, false},
		{"active", "boot-2", "", false, true},
		{"active", "boot-2", "ag-other", false, false}, // the boot before was that of another agent
	} {
		id := fmt.Sprint("m-", i)
		a := inService(t, s, id)
		replica(
			t,
			s,
			`UPDATE machines SET node_state = $1, agent_id = coalesce(nullif($2, ''), agent_id) WHERE machine_id = $3`,
			c.state,
			c.agent,
			id,
		)
		replica(t, s, `INSERT INTO machine_conditions (machine_id, type, status, known, reason, observed_by, observed_at,
			last_transition, last_known) VALUES ($1, 'RAIDDegraded', true, false, 'RAID_DEGRADED', $2, now(), now(),
			jsonb_build_object('status', true, 'reason', 'RAID_DEGRADED', 'message', '', 'last_transition', now()))`, id, a.ID)
		replica(
			t,
			s,
			`INSERT INTO machine_causes (machine_id, cause, reason, since) VALUES ($1, $2, 'REBOOT_FAILED', now())`,
			id,
			string(fleet.CauseReboot),
		)
		replica(t, s, `INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
			VALUES ($1, 'NeedsIntervention', true, 'REBOOT_FAILED', now())`, id)
		storetest.Open(t, s, a.Hello("st-1", c.boot))
		var known bool
		must(t, s.DB.Pool().QueryRow(t.Context(), `SELECT known FROM machine_conditions WHERE machine_id = $1
			AND type = 'RAIDDegraded'`, id).Scan(&known))
		needs := storetest.Condition(storetest.Machine(t, s, id), fleet.NeedsIntervention)
		if known != c.known || (needs == nil) != c.cured {
			t.Errorf("%+v: known %t, needs %v", c, known, needs)
		}
		var by string
		must(t, s.DB.Pool().QueryRow(t.Context(), `SELECT reason FROM machine_conditions WHERE machine_id = $1
			AND type = 'NeedsIntervention'`, id).Scan(&by))
		if c.cured && by != "NewBoot" {
			t.Errorf("%+v: cured by %s", c, by)
		}
	}
}

// A boot that a clone of the agent shows quarantines the machine, and changes nothing else of it.
func TestAClonesSessionIsNotTheMachines(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	a := inService(t, s, "m-1")
	storetest.Open(t, s, a.Hello("st-1", "boot-2"))
	replica(t, s, "UPDATE machine_conditions SET status = false WHERE type = 'Reachable'")
	h := a.Hello("st-1", "boot-1")
	h.Simulated = true
	if o := storetest.Open(t, s, h); !o.Cloned {
		t.Errorf("%+v", o)
	}
	m := storetest.Machine(t, s, "m-1")
	if m.GetStatus().GetBootId() != "boot-2" || m.GetStatus().GetSimulated() ||
		storetest.Condition(m, fleet.Reachable) != nil {
		t.Errorf("the machine is %v", m.GetStatus())
	}
	if got := storetest.State(t, s, "m-1"); got != "quarantined" {
		t.Errorf("the node is %s", got)
	}
}
