package operation_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A reboot at the store (start, first look, acknowledgement, grant, result) waits for the database no oftener than
// this.
func TestRoundTripsOfAReboot(t *testing.T) {
	const most = 40
	c := &storetest.Trips{}
	s := storetest.With(t, store.Config{Tracer: c})
	a := storetest.Live(t, s, "m-1")
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	statements, trips := c.Statements.Load(), c.RoundTrips.Load()
	if err := storetest.RebootOnce(t.Context(), s, a, 2); err != nil {
		t.Fatal(err)
	}
	statements, trips = c.Statements.Load()-statements, c.RoundTrips.Load()-trips
	t.Logf("%d statements in %d round trips", statements, trips)
	if trips > most {
		t.Errorf("%d round trips, at most %d are wanted", trips, most)
	}
}

// The start of a reimage reads the image, the inventory, the installers and all else that may refuse it in one round
// trip.
func TestRoundTripsOfAReimagesStart(t *testing.T) {
	const mostStatements, mostTrips = 22, 7
	c := &storetest.Trips{}
	r := storetest.NewMetalRigWith(t, store.Config{Tracer: c})
	r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot", "netboot")
	statements, trips := c.Statements.Load(), c.RoundTrips.Load()
	storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny"), Actor: "x"})
	statements, trips = c.Statements.Load()-statements, c.RoundTrips.Load()-trips
	t.Logf("%d statements in %d round trips", statements, trips)
	if statements > mostStatements || trips > mostTrips {
		t.Errorf("%d statements in %d round trips, at most %d and %d are wanted", statements, trips, mostStatements,
			mostTrips)
	}
}

// A whole reimage reads nothing twice: no step asks for what another one needs.
func TestStatementsOfAReimage(t *testing.T) {
	const most = 358
	c := &storetest.Trips{}
	r := storetest.NewMetalRigWith(t, store.Config{Tracer: c})
	before := c.Statements.Load()
	r.Reimage()
	n := c.Statements.Load() - before
	t.Logf("%d statements", n)
	if n > most {
		t.Errorf("%d statements, at most %d are wanted", n, most)
	}
}

// Queries that go together see what those before them did, and end with the first that fails.
func TestTogether(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	q := dbsqlc.New(s.DB.Pool())
	var before, after dbsqlc.Machine
	err := q.Together(t.Context(),
		func(q *dbsqlc.Queries) (err error) { before, err = q.GetMachine(t.Context(), "m-1"); return err },
		func(q *dbsqlc.Queries) error {
			return q.SetBootMode(t.Context(), dbsqlc.SetBootModeParams{MachineID: "m-1", BootMode: "rescue"})
		},
		func(q *dbsqlc.Queries) (err error) { after, err = q.GetMachine(t.Context(), "m-1"); return err },
	)
	if err != nil || before.BootMode != "disk" || after.BootMode != "rescue" {
		t.Errorf("%q, %q, %v", before.BootMode, after.BootMode, err)
	}
	err = q.Together(t.Context(),
		func(q *dbsqlc.Queries) error {
			return q.SetBootMode(t.Context(), dbsqlc.SetBootModeParams{MachineID: "m-1", BootMode: "disk"})
		},
		func(*dbsqlc.Queries) error { return nil },
	)
	if err == nil {
		t.Errorf("a function without a query: %v", err)
	}
	err = q.Together(t.Context(),
		func(q *dbsqlc.Queries) error { _, err := q.GetMachine(t.Context(), "m-none"); return err })
	if !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("no rows: %v", err)
	}
	twice := func(q *dbsqlc.Queries) error {
		_, err := q.GetMachine(t.Context(), "m-1")
		_, again := q.GetMachine(t.Context(), "m-1")
		return errors.Join(err, again)
	}
	if err := q.Together(t.Context(), twice); err == nil {
		t.Error("a function with two queries is taken")
	}
	if got := storetest.Machine(t, s, "m-1").GetStatus().GetBootAssignment(); got != "rescue" {
		t.Errorf("it boots %s", got)
	}
}
