// Package fill puts machines into a database as if they had lived there: for benchmarks of large fleets. It goes past
// the controller, with COPY and without triggers, because a million registrations would take longer than the
// measurement.
package fill

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Prefix begins the names of all machines that are made here.
const Prefix = "fill-"

// Machine is the name of the n-th machine.
func Machine(n int) string { return fmt.Sprintf("%s%07d", Prefix, n) }

// Operation is the id of the operation that the n-th machine has had, where n is a multiple of OperationEvery.
func Operation(n int) string { return fmt.Sprintf("op-fill-%07d", n) }

const (
	// OperationEvery machines there is one that has had an operation.
	OperationEvery = 5
	// RareEvery machines there is one in MAINTENANCE and with the label fill.rare.
	RareEvery = 10_000
	// Racks and Sites are how many of them the machines stand in.
	Racks = 2000
	Sites = 20
	// chunk is how many machines go into one transaction.
	chunk = 50_000
)

// Machines makes machines from number from up to number to-1, each with five labels, a condition, an agent and a
// session that stays live. A fifth of them have an operation that has ended. It needs a superuser of the database.
func Machines(ctx context.Context, conn *pgx.Conn, from, to int, progress func(done int)) error {
	if err := Rows(ctx, conn, from, to, progress); err != nil {
		return err
	}
	return Analyze(ctx, conn)
}

// Analyze makes the database gather its statistics for plans, as it does by itself some time after a load.
func Analyze(ctx context.Context, conn *pgx.Conn) error {
	// The visibility map too: without it new rows would be looked up one by one.
	if _, err := conn.Exec(ctx,
		"VACUUM (ANALYZE) machines, machine_conditions, agents, agent_sessions, operations"); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

// Rows is Machines but for the statistics that the database plans by: as it is right after a load.
func Rows(ctx context.Context, conn *pgx.Conn, from, to int, progress func(done int)) error {
	for at := from; at < to; at += chunk {
		end := min(at+chunk, to)
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return some(ctx, tx, at, end) }); err != nil {
			return fmt.Errorf("fill machines from %d: %w", at, err)
		}
		progress(end)
	}
	return nil
}

// table has the columns and values that are copied for each machine with a row in it.
type table struct {
	name    string
	columns []string
	row     func(n int) []any
	every   int
}

func some(ctx context.Context, tx pgx.Tx, from, to int) error {
	// Triggers keep histories and stamps of changes; these machines have none.
	for _, q := range []string{
		"SET LOCAL session_replication_role = replica", "SET LOCAL statement_timeout = 0",
		`INSERT INTO controllers (controller_id, version, started_at, lease_until)
		 VALUES ('fill', 'fill', now(), now() + interval '10 years') ON CONFLICT DO NOTHING`,
		`INSERT INTO sites (site) SELECT 'site-' || n FROM generate_series(0, 19) n ON CONFLICT DO NOTHING`,
	} {
		if _, err := tx.Exec(ctx, q); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	for _, t := range tables(time.Now().UTC()) {
		n := (from + t.every - 1) / t.every * t.every
		rows := pgx.CopyFromFunc(func() ([]any, error) {
			if n >= to {
				return nil, nil
			}
			row := t.row(n)
			n += t.every
			return row, nil
		})
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, rows); err != nil {
			return fmt.Errorf("copy %s: %w", t.name, err)
		}
	}
	return nil
}

func tables(now time.Time) []table {
	agent := func(n int) string { return fmt.Sprintf("a-fill-%07d", n) }
	later := now.AddDate(10, 0, 0) // their agents never fall silent
	created := func(n int) time.Time { return now.Add(-24*time.Hour - time.Duration(n)*time.Millisecond) }
	return []table{
		{"machines", []string{
			"machine_id", "labels", "spec", "phase", "node_state", "node_state_changed_at", "agent_id", "boot_id", "created_at",
		}, func(n int) []any {
			return []any{Machine(n), labels(n), spec(n), phase(n), "active", created(n), agent(n), fmt.Sprintf("boot-%07d", n),
				created(n)}
		}, 1},
		{"machine_conditions", []string{"machine_id", "type", "status", "reason", "last_transition"}, func(n int) []any {
			return []any{Machine(n), "Reachable", true, "Heartbeat", created(n)}
		}, 1},
		{"agents", []string{"agent_id", "role", "machine_id", "version", "state_id", "boot_id", "created_at"},
			func(n int) []any {
				return []any{agent(n), "host", Machine(n), "fill", "state", fmt.Sprintf("boot-%07d", n), created(n)}
			}, 1},
		{"agent_sessions", []string{
			"agent_id", "session_id", "epoch", "controller_id", "fingerprint", "state_id", "boot_id", "started_at",
			"last_heartbeat_at",
		}, func(n int) []any {
			return []any{agent(n), "s-" + agent(n), 1, "fill", "fill", "state", fmt.Sprintf("boot-%07d", n), created(n), later}
		}, 1},
		{"operations", []string{
			"operation_id", "target_id", "request_id", "request_body", "type", "phase", "plan_id", "created_at", "started_at",
			"finished_at", "updated_at",
		}, func(n int) []any {
			end := "SUCCEEDED"
			if n%1000 == 0 {
				end = "FAILED"
			}
			return []any{
				Operation(n), Machine(n), "fill", map[string]string{}, "REBOOT", end, "reboot", created(n), created(n),
				created(n).Add(time.Minute), created(n).Add(time.Minute),
			}
		}, OperationEvery},
	}
}

func phase(n int) string {
	if n%RareEvery == 0 {
		return "MAINTENANCE"
	}
	return "READY"
}

func labels(n int) map[string]string {
	rare := "no"
	if n%RareEvery == 0 {
		rare = "yes"
	}
	return map[string]string{
		"rack": fmt.Sprintf("r%d", n%Racks), "team": fmt.Sprintf("team-%d", n%50), "env": []string{"prod", "stage"}[n%2],
		"asset": fmt.Sprintf("A%09d", n), "fill.rare": rare,
	}
}

func spec(n int) map[string]any {
	return map[string]any{
		"site": fmt.Sprintf("site-%d", n%Sites), "provider": "redfish", "rack": fmt.Sprintf("r%d", n%Racks),
		"serial": fmt.Sprintf("SN%09d", n),
		"region": "eu-1", "group": fmt.Sprintf("g%d", n%10),
		"bmc_endpoint":  fmt.Sprintf("https://10.%d.%d.%d", n>>16&255, n>>8&255, n&255),
		"mac_addresses": []string{fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", n>>24&255, n>>16&255, n>>8&255, n&255)},
	}
}
