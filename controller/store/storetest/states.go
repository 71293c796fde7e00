package storetest

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/store"
)

// EveryMachine stores a machine for each combination of what the effective state is made of: phase, node state,
// operation, workflow, fence, and the conditions that count, of which Reachable may be unknown. It returns their number. No history leads to most of them,
// so triggers and references are off while they are written.
func EveryMachine(t testing.TB, s *store.Store) int {
	t.Helper()
	conn, err := s.DB.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, statement := range []string{
		`SET session_replication_role = replica`,
		`INSERT INTO machines (machine_id, phase, node_state, node_state_changed_at, current_operation_id, active_workflow_id,
		                       unresolved_command_id, created_at)
		 SELECT format('m-%s-%s-%s-%s-%s-%s', lower(replace(p, '_', '')), replace(n, '_', ''), o, w, f, c),
		        p, n, now(), CASE WHEN o = 1 THEN 'op-x' END, CASE WHEN w = 1 THEN 'wf-x' END, CASE WHEN f = 1 THEN 'cmd-x' END, now()
		 FROM unnest(ARRAY['FACTORY_READY', 'READY', 'MAINTENANCE']) p,
		      unnest(ARRAY['discovered', 'bootstrap_issued', 'enrolling', 'pending', 'installing', 'install_failed', 'installed',
		                   'active', 'offline', 'quarantined', 'reprovision', 'deprovisioning', 'migrating', 'draining', 'retired',
		                   'removing']) n,
		      generate_series(0, 1) o, generate_series(0, 1) w, generate_series(0, 1) f, generate_series(0, 47) c`,
		`INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
		 SELECT m.machine_id, k.type, true, 'EXECUTION_FAILED', now()
		 FROM machines m, (VALUES (0, 'RMA'), (1, 'Retired'), (2, 'NeedsIntervention'), (3, 'Provisioned'), (4, 'Reachable')) k (bit, type)
		 WHERE (substring(m.machine_id FROM '[0-9]+$')::int >> k.bit) & 1 = 1`,
		// The third value of Reachable: its witness is silent.
		`INSERT INTO machine_conditions (machine_id, type, status, known, reason, observed_at, observed_by, last_transition)
		 SELECT m.machine_id, 'Reachable', false, false, 'SITE_AGENT_SILENT', now(), 'ag-x', now()
		 FROM machines m WHERE substring(m.machine_id FROM '[0-9]+$')::int >= 32`,
		`RESET session_replication_role`,
		// Moments from now on have them too, as the migration does it for machines that are there.
		`SELECT count(machine_states_add(x.change_xid)) FROM (SELECT DISTINCT change_xid FROM machines) x`,
		`ANALYZE machines, machine_conditions`,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM machines").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
