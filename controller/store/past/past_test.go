package past_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/migrations"
)

// A column of machines that clients see must be in its states: this test is to be told of each that they don't see.
func TestStatesHaveWhatClientsSee(t *testing.T) {
	s := storetest.New(t)
	rows, err := s.DB.Pool().
		Query(t.Context(), `SELECT column_name FROM information_schema.columns m WHERE table_name = 'machines'
		AND NOT EXISTS (SELECT 1 FROM information_schema.columns s
			WHERE s.table_name = 'machine_states' AND s.column_name = m.column_name)`)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	unseen := strings.Fields(`config_generation change_xid plan_id failed_plan_id retiring quarantined_from
		quarantine_reason failed_node_plan accepted_drift registered_by_request last_power_state`)
	elsewhere := strings.Fields("created_at external_id labels spec provider site region")
	for _, name := range left {
		if !slices.Contains(unseen, name) && !slices.Contains(elsewhere, name) {
			t.Errorf("no moment has the column %s of machines", name)
		}
	}
}

// Machines that are older than the table get one row with their present state. Their updated_at does not change.
func TestMachinesOfBeforeHaveAState(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	m := storetest.Register(t, s, "m-2")
	for _, name := range []string{"0045_known.down.sql", "0038_moments.down.sql", "0038_moments.up.sql",
		"0045_known.up.sql"} {
		sql, err := migrations.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(t.Context(), s.DB.Pool(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), string(sql))
			return err
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s.DB.Pool().Reset()
	since, err := s.Past.StatesSince(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Past.MachinesAt(t.Context(), since, "", 10)
	if err != nil || len(got) != 2 || got[1].GetVersion() != m.GetVersion() ||
		len(got[0].GetStatus().GetConditions()) == 0 {
		t.Errorf("%v, %v", got, err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM machine_states"); n != 2 {
		t.Errorf("%d states", n)
	}
	if got, err := s.Past.MachinesAt(t.Context(), since.Add(-time.Hour), "", 10); err != nil || len(got) != 0 {
		t.Errorf("before: %v, %v", got, err)
	}
	if _, err := s.Machines.Update(t.Context(), &baremetalv1.Machine{MachineId: "m-2",
		Labels: map[string]string{"a": "b"}}, "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	now, err := s.Past.MachineAt(t.Context(), "m-2", storetest.Now().Add(time.Hour))
	if err != nil || now.GetLabels()["a"] != "b" {
		t.Errorf("after a change: %v, %v", now, err)
	}
	if err := storetest.ExecSQL(t, s, "UPDATE machine_states SET phase = 'READY'"); err == nil ||
		!strings.Contains(err.Error(), "never change") {
		t.Errorf("a state was changed: %v", err)
	}
}
