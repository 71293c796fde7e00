package nodestate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// An inventory that the controller could not read later is refused when it comes.
func TestReadableInventories(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]bool{
		`{}`: true, ` {"disks": []}`: true, `{"disks": [{"serial": "S1"}], "pci": [{"class": "0302"}]}`: true,
		``: false, `null`: false, `[]`: false, `"{}"`: false, `{`: false, `{"disks": 7}`: false, `{"nics": 7}`: false,
		`{"system": []}`: false, `{} {}`: false,
	} {
		if got := nodestate.ReadableInventory([]byte(document)); got != want {
			t.Errorf("%q is readable: %t", document, got)
		}
	}
}

// report stores a newest inventory of a machine, an older one before it.
func report(t *testing.T, s *store.Store, id, document string, simulated bool) {
	t.Helper()
	replica(t, s, `INSERT INTO inventories (machine_id, reported_at, agent_id, hash, document, simulated)
		SELECT $1, clock_timestamp(), '', clock_timestamp()::text, $2, $3`, id, document, simulated)
}

// The newest inventory decides what hardware a machine shows: its strong facts, and whether it has an accelerator.
func TestHardwareOfTheNewestInventory(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	const (
		whole = `{"system": {"uuid": "4C4C4544-0031-3510-8052-B7C04F4E4B32", "serial": "SN-1", "board_serial": "B-1",
			"chassis_serial": "C-1"}, "nics": [{"mac": "52:54:00:00:00:0A"}],
			"pci": [{"class": "020000", "vendor": "10de"}, {"class": "030200", "vendor": "10de"}]}`
		bare = `{"pci": [{"class": "020000", "vendor": "10de"}]}`
	)
	facts := hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b32", Serial: "SN-1", Board: "B-1"}
	for i, c := range []struct {
		name        string
		reports     []string
		simulated   bool
		facts       hwid.Facts
		accelerator bool
	}{
		{"none", nil, false, hwid.Facts{}, false},
		{"whole", []string{bare, whole}, false, facts, true},
		{"a simulated one", []string{bare, whole}, true, hwid.Facts{}, true},
		{"of before", []string{whole, bare}, false, hwid.Facts{}, false},
	} {
		id := fmt.Sprint("m-", i)
		storetest.Register(t, s, id)
		for _, document := range c.reports {
			report(t, s, id, document, c.simulated)
		}
		got, err := nodestate.ObservedHardware(t.Context(), s.DB.Q, id)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.facts) {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.facts)
		}
		if has, err := nodestate.HasAccelerator(t.Context(), s.DB.Q, id); err != nil || has != c.accelerator {
			t.Errorf("%s: an accelerator: %t, %v", c.name, has, err)
		}
	}
}

// The health checks of a machine's group compare the registration with what was seen. Those that do not pass
// are named.
func TestHealthChecksOfAMachine(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	replica(t, s, `INSERT INTO node_groups (node_group, auto_promote, explicit_promotion, health_checks, updated_at)
		VALUES ('quick', false, false, '{}', now()), ('one', false, false, '{reachable}', now()),
		('seen', false, false, '{reachable,provider}', now())`)
	const seen = `{"system": {"serial": "SN-1", "chassis_serial": "C-1"}, "nics": [{"mac": "52:54:00:00:00:0A"}]}`
	all := []string{node.CheckReachable, node.CheckInventory, node.CheckProvider}
	for i, c := range []struct {
		name, spec string
		live       bool
		reports    []string
		simulated  bool
		more       string // $1 is the machine
		checks     []string
		failing    []string // how each begins
	}{
		{name: "nothing registered", spec: `{}`, live: true, checks: all},
		{name: "not live", spec: `{}`, checks: all, failing: []string{"reachable: the machine's agent has no session"}},
		{name: "no inventory", spec: `{"serial": "SN-1"}`, live: true, checks: all,
			failing: []string{"inventory: the machine has sent no inventory"}},
		{name: "its own", spec: `{"serial": "SN-1", "mac_addresses": ["52:54:00:00:00:0a"]}`, live: true,
			reports: []string{seen},
			checks:  all},
		{name: "by the chassis", spec: `{"serial": "C-1"}`, live: true, reports: []string{seen}, checks: all},
		{name: "another address", spec: `{"mac_addresses": ["52:54:00:00:00:0b"]}`, live: true, reports: []string{seen},
			checks: all, failing: []string{"inventory: registered MAC address 52:54:00:00:00:0b is not among the machine's: " +
				"52:54:00:00:00:0a"}},
		{name: "another serial number", spec: `{"serial": "SN-2"}`, live: true, reports: []string{seen}, checks: all,
			failing: []string{`inventory: registered serial number "SN-2" is not the machine's: "SN-1"`}},
		{name: "another one, simulated", spec: `{"serial": "SN-2"}`, live: true, reports: []string{seen}, simulated: true,
			checks: all},
		{name: "the newest counts", spec: `{"serial": "SN-1"}`, live: true, reports: []string{seen, `{}`}, checks: all,
			failing: []string{"inventory: the machine's serial number was not read"}},
		{name: "no checks", spec: `{"group": "quick", "serial": "SN-1"}`},
		{name: "one check", spec: `{"group": "one", "serial": "SN-1"}`, checks: all[:1],
			failing: []string{"reachable: the machine's agent has no session"}},
		{name: "some checks", spec: `{"group": "seen", "serial": "SN-1"}`, live: true,
			checks: []string{node.CheckReachable, node.CheckProvider}},
		{name: "an unset group", spec: `{"group": "unset", "serial": "SN-1"}`, live: true, checks: all,
			failing: []string{"inventory: the machine has sent no inventory"}},
		{name: "something else that does not answer", spec: `{}`, live: true, checks: all,
			more: strings.Replace(bmc("false", "true"), "BMCReachable", "Reachable", 1)},
		{name: "a BMC that answers", spec: `{}`, live: true, checks: all, more: bmc("true", "true")},
		{name: "a BMC that does not", spec: `{}`, live: true, checks: all, more: bmc("false", "true"),
			failing: []string{"provider: the machine's BMC does not answer"}},
		{name: "a BMC that nothing sees", spec: `{"site": "lab"}`, live: true, checks: all, more: bmc("false", "false"),
			failing: []string{"provider: nothing observes the machine's BMC: the agent of site lab is silent"}},
		{name: "not asked by MAAS", spec: `{"provider": "maas"}`, live: true, checks: all,
			failing: []string{"provider: MAAS was not asked yet"}},
		{name: "deployed by MAAS", spec: `{"provider": "maas"}`, live: true, checks: all, more: maas("Deployed")},
		{name: "ready in MAAS", spec: `{"provider": "maas"}`, live: true, checks: all, more: maas("Ready"),
			failing: []string{"provider: MAAS says Ready, not Deployed"}},
		{name: "in MAAS its BMC does not count", spec: `{"provider": "maas"}`, live: true, checks: all,
			more: maas("Deployed") + "; " + bmc("false", "true")},
	} {
		id := fmt.Sprint("m-", i)
		storetest.Register(t, s, id)
		replica(t, s, "UPDATE machines SET spec = $1 WHERE machine_id = $2", c.spec, id)
		for _, document := range c.reports {
			report(t, s, id, document, c.simulated)
		}
		for sql := range strings.SplitSeq(c.more, "; ") {
			if sql != "" {
				replica(t, s, sql, id)
			}
		}
		m, err := s.DB.Q.GetMachine(t.Context(), id)
		must(t, err)
		got, err := nodestate.HealthChecks(t.Context(), s.DB.Q, m, c.live)
		must(t, err)
		var names []string
		for _, check := range got {
			names = append(names, check.Name)
		}
		if !slices.Equal(names, c.checks) {
			t.Errorf("%s: the checks are %v, want %v", c.name, names, c.checks)
		}
		failing, err := nodestate.FailingChecks(t.Context(), s.DB.Q, m, c.live)
		if err != nil || !slices.EqualFunc(failing, c.failing, strings.HasPrefix) {
			t.Errorf("%s: failing are %q, %v, want %q", c.name, failing, err, c.failing)
		}
		unknown := slices.ContainsFunc(got, func(h node.HealthCheck) bool { return h.State == node.CheckUnknown })
		if want := slices.ContainsFunc(c.failing, unseen); unknown != want {
			t.Errorf("%s: a check is unknown: %t, want %t", c.name, unknown, want)
		}
	}
}

// unseen reports whether a check names something that was not seen.
func unseen(failing string) bool {
	return storetest.ContainsAny(failing, "no inventory", "was not read", "nothing observes", "not asked")
}

func bmc(status, known string) string {
	return `INSERT INTO machine_conditions (machine_id, type, status, known, reason, last_transition)
		VALUES ($1, 'BMCReachable', ` + status + ", " + known + ", '', now())"
}

func maas(state string) string {
	return `INSERT INTO provider_observations (machine_id, provider, state, status, system_id, power_state, deployed,
		drift, reason, message, changed_at) VALUES ($1, 'maas', '` + state + `', '', '', '', '', '', '', '', now())`
}

// The policy of a group that was not set is the default one.
func TestGroupsOfMachines(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	replica(t, s, `INSERT INTO node_groups (node_group, auto_promote, explicit_promotion, health_checks, updated_at)
		VALUES ('fast', true, true, '{reachable}', now())`)
	for group, want := range map[string]dbsqlc.NodeGroup{
		"": {HealthChecks: node.Checks()}, "unset": {NodeGroup: "unset", HealthChecks: node.Checks()},
		"fast": {NodeGroup: "fast", AutoPromote: true, ExplicitPromotion: true, HealthChecks: []string{"reachable"}},
	} {
		got, err := nodestate.GroupOf(t.Context(), s.DB.Q, dbsqlc.Machine{Spec: fmt.Appendf(nil, `{"group": %q}`, group)})
		if err != nil || got.NodeGroup != want.NodeGroup || got.AutoPromote != want.AutoPromote ||
			got.ExplicitPromotion != want.ExplicitPromotion || !slices.Equal(got.HealthChecks, want.HealthChecks) {
			t.Errorf("%q: %+v, %v, want %+v", group, got, err, want)
		}
	}
}
