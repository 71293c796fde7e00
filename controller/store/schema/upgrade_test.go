package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/migrations"
)

// before is the last schema of the version that an upgrade comes from.
const before = 18

// backTo takes the schema back to a version, one migration after the other.
func backTo(t *testing.T, s *store.Store, version int) {
	t.Helper()
	defer s.DB.Pool().Reset() // what was prepared before may have another type of result
	names, err := migrations.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Backward(names) {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "%d", &n); err != nil || n <= version || !strings.HasSuffix(e.Name(), ".down.sql") {
			continue
		}
		sql, err := migrations.Files.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		run(t, s, string(sql))
		run(t, s, fmt.Sprintf("UPDATE schema_version SET version = %d", n-1))
	}
}

func run(t *testing.T, s *store.Store, sql string) {
	t.Helper()
	if _, err := s.DB.Pool().Exec(t.Context(), sql); err != nil {
		t.Fatalf("%.60s: %v", sql, err)
	}
}

// populated is a machine in each node state and phase as the version before stores it, and some with a past of their
// own.
const populated = `
INSERT INTO machines (machine_id, phase, node_state, node_state_changed_at, created_at, agent_id, os_image_digest)
SELECT 'm-' || replace(n, '_', '-') || '-' || lower(replace(p, '_', '-')), p, n, now(), now(), 'a-' || n || p, ''
FROM unnest(ARRAY['discovered', 'bootstrap_issued', 'enrolling', 'pending', 'installing', 'install_failed', 'installed', 'active', 'offline',
                  'quarantined', 'reprovision', 'deprovisioning', 'migrating', 'draining', 'retired', 'removing']) n,
     unnest(ARRAY['FACTORY_READY', 'READY', 'MAINTENANCE']) p;
INSERT INTO plans (plan_id, body, digest, built_in, created_at) VALUES ('p', '', '', false, now());
INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, error, evidence, created_at, finished_at, updated_at)
VALUES ('op-bad', 'm-pending-ready', 'r', '{}', 'REIMAGE', 'FAILED', 'p', '{"code": "DISK_WRITE_ERROR"}', '{}', now(), now(), now()),
       ('op-good', 'm-active-maintenance', 'r', '{}', 'REIMAGE', 'SUCCEEDED', 'p', NULL, '{"image_digest": "sha256:a"}', now(), now(), now()),
       ('op-unknown', 'm-active-ready', 'r', '{}', 'RECONFIGURE', 'FAILED', 'p', '{"code": "OUTCOME_UNKNOWN"}', '{}', now(), now(), now());
INSERT INTO operation_steps (operation_id, idx, name, kind, spec, timeout_ms, max_retries, state)
VALUES ('op-bad', 0, 'write', 'repave', '', 1000, 0, 'FAILED'), ('op-good', 0, 'write', 'repave', '', 1000, 0, 'SUCCEEDED'),
       ('op-unknown', 0, 'net', 'net', '', 1000, 0, 'FAILED');
INSERT INTO commands (command_id, operation_id, target_id, step_idx, step_name, attempt, kind, spec, digest, executor_id, state, deadline, created_at, granted_at, finished_at)
VALUES ('cmd-bad', 'op-bad', 'm-pending-ready', 0, 'write', 1, 'repave', '', '', 'a-1', 'DONE', now(), now(), now(), now()),
       ('cmd-good', 'op-good', 'm-active-maintenance', 0, 'write', 1, 'repave', '', '', 'a-1', 'DONE', now(), now(), now(), now()),
       ('cmd-unknown', 'op-unknown', 'm-active-ready', 0, 'net', 1, 'net', '', '', 'a-1', 'UNKNOWN', now(), now(), now(), now());
UPDATE machines SET unresolved_command_id = 'cmd-unknown' WHERE machine_id = 'm-active-ready';
UPDATE machines SET os_image_digest = 'sha256:a' WHERE machine_id IN ('m-active-maintenance', 'm-pending-ready');
INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
SELECT machine_id, 'NeedsIntervention', true,
       CASE machine_id WHEN 'm-pending-ready' THEN 'DISK_WRITE_ERROR' WHEN 'm-active-ready' THEN 'OUTCOME_UNKNOWN' ELSE 'CLONE_DETECTED' END, now()
FROM machines WHERE node_state = 'quarantined' OR machine_id IN ('m-pending-ready', 'm-active-ready');
INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
SELECT machine_id, 'Provisioned', true, 'ImageVerified', now() FROM machines WHERE machine_id IN ('m-active-maintenance', 'm-pending-ready');`

// An upgrade loses no machine and no history, forward, back and forward again, and tells nobody that a machine is green
// which is not known to be.
func TestAnUpgradeKeepsEveryMachine(t *testing.T) {
	s := empty(t)
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	backTo(t, s, before)
	run(t, s, populated)
	old := machinesOf(t, s)
	for range 2 {
		if err := s.Schema.MigrateUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := machinesOf(t, s); !slices.Equal(old, now) || len(now) != 48 {
			t.Fatalf("%d machines before, %d afterwards", len(old), len(now))
		}
		holdsUpgraded(t, s)
		backTo(t, s, before)
		if now := machinesOf(t, s); !slices.Equal(old, now) {
			t.Fatal("the way back has changed machines")
		}
	}
}

func machinesOf(t *testing.T, s *store.Store) []string {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(),
		`SELECT concat_ws(' ', machine_id, phase, node_state, agent_id, unresolved_command_id, labels, spec)
		FROM machines ORDER BY machine_id`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func holdsUpgraded(t *testing.T, s *store.Store) {
	t.Helper()
	if n := storetest.Count(t, s,
		`SELECT count(*) FROM machine_conditions c WHERE c.type = 'NeedsIntervention' AND c.status
		AND NOT EXISTS (SELECT 1 FROM machine_causes k WHERE k.machine_id = c.machine_id AND k.reason = c.reason)`); n != 0 {
		t.Errorf("%d machines need a person for no cause", n)
	}
	for id, cause := range map[string]fleet.Cause{
		"m-pending-ready": fleet.CauseReimage, "m-active-ready": fleet.CauseUnknown,
		"m-quarantined-ready": fleet.CauseQuarantine,
	} {
		if n := storetest.Count(t, s, "SELECT count(*) FROM machine_causes WHERE machine_id = $1 AND cause = $2", id,
			string(cause)); n != 1 {
			t.Errorf("%s has %d causes %s", id, n, cause)
		}
	}
	provisioned := map[string]bool{
		"m-pending-ready": false, "m-active-maintenance": true, "m-active-factory-ready": true, "m-discovered-ready": false,
		"m-offline-ready": true,
	}
	for id, want := range provisioned {
		m := storetest.Machine(t, s, id)
		if got := storetest.Condition(m, fleet.Provisioned) != nil; got != want ||
			want != (m.GetStatus().GetFirstProvisionedAt() != nil) && id != "m-pending-ready" {
			t.Errorf("%s: Provisioned %t, first %v", id, got, m.GetStatus().GetFirstProvisionedAt())
		}
	}
	if d := storetest.Machine(t, s, "m-pending-ready").GetStatus().GetOsImageDigest(); d != "" {
		t.Errorf("a machine whose write has failed shows image %s", d)
	}
}

// beforeRights is the last schema before tokens had selections, budgets a harm, and rollouts a bound.
const beforeRights = 42

const rightsInUse = `
INSERT INTO machines (machine_id, phase, node_state, node_state_changed_at, created_at, agent_id, os_image_digest)
VALUES ('m-1', 'MAINTENANCE', 'active', now(), now(), 'a-1', '');
INSERT INTO plans (plan_id, body, digest, built_in, created_at) VALUES ('p', '', '', false, now());
INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, evidence, created_at, finished_at, updated_at, destructive)
VALUES ('op-1', 'm-1', 'r', '{}', 'REIMAGE', 'FAILED', 'p', '{}', now(), now(), now(), true);
INSERT INTO budgets (name, domain, value, at_once, percent, per_hour, per_day, updated_at) VALUES ('racks', 'label:rack', '', 1, 0, 0, 0, now());
INSERT INTO budget_slots (operation_id, machine_id, site, labels, taken_at) VALUES ('op-1', 'm-1', '', '{}', now());
INSERT INTO role_bindings (binding_id, role, member_kind, member, selection, created_at, created_by)
VALUES ('rb-1', 'operator', 'group', 'night', 'site=a', now(), 'admin');
INSERT INTO api_tokens (token_id, name, scope, hash, created_at, created_by, expires_at)
SELECT 'tok-' || s, s, s, s::bytea, now(), 'admin', now() + interval '1 day' FROM unnest(ARRAY['read', 'operate', 'report', 'admin']) s;`

// An upgrade with tokens, roles and budgets in use widens none: each token has its scope, no role grows, and a budget
// limits the work that it has limited.
func TestAnUpgradeWidensNoRights(t *testing.T) {
	s := empty(t)
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	backTo(t, s, beforeRights)
	run(t, s, rightsInUse)
	for range 2 {
		if err := s.Schema.MigrateUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		for what, query := range map[string]string{
			"tokens as they were":   `SELECT count(*) = 4 AND bool_and(scope = name AND selection = '') FROM api_tokens`,
			"the role as it was":    `SELECT count(*) = 1 AND bool_and(role = 'operator' AND selection = 'site=a') FROM role_bindings`,
			"a budget of data lost": `SELECT count(*) = 1 AND bool_and(harm = 'DESTROYS' AND at_once = 1) FROM budgets`,
			"a slot that is held":   `SELECT count(*) = 1 AND bool_and(harm = 'DESTROYS' AND released_at IS NULL) FROM budget_slots`,
			"no policy":             `SELECT count(*) = 0 FROM approval_policies`,
		} {
			if n := storetest.Count(t, s, "SELECT ("+query+")::int"); n != 1 {
				t.Errorf("not %s", what)
			}
		}
		backTo(t, s, beforeRights)
	}
}
