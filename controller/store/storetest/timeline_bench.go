package storetest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// WalPosition is how much write-ahead log there ever was.
func WalPosition(t testing.TB, s *store.Store) int64 {
	t.Helper()
	var n int64
	if err := s.DB.Pool().QueryRow(t.Context(), "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(
		&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func RebootOnce(ctx context.Context, s *store.Store, a Enrolled, n int) error {
	op, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: a.Machine, RequestID: fmt.Sprint("r-", n),
		Type: fleet.Reboot, Actor: "tester"}, Now())
	if err != nil {
		return err
	}
	id := op.GetOperationId()
	d, err := s.Operations.Decide(ctx, id, operation.Evaluate{}, Now())
	if err != nil {
		return err
	}
	c := d.Command
	for _, e := range []operation.Event{
		operation.AckedByAgent{CommandID: c.ID, AgentID: a.ID},
		Ask(a, c, uint64(n), 1),
		operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded,
			SessionBootID: fmt.Sprint("boot-", n+1)},
	} {
		if d, err = s.Operations.Decide(ctx, id, e, Now()); err != nil {
			return err
		}
	}
	if d.Phase != operation.Succeeded {
		return fmt.Errorf("the reboot is %s", d.Phase)
	}
	return nil
}

// ProcessorTime is what fn costs in time of this process and of the store's server processes: a busy machine blurs any
// other time.
func ProcessorTime(t testing.TB, s *store.Store, fn func()) time.Duration {
	t.Helper()
	before := cpuTime(t, s)
	fn()
	return cpuTime(t, s) - before
}

func cpuTime(t testing.TB, s *store.Store) time.Duration {
	t.Helper()
	return ServerTime(t, s) + OwnTime(t)
}

// ServerTime is what the server processes of the store have used.
func ServerTime(t testing.TB, s *store.Store) time.Duration {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// OwnTime is what this process has used.
func OwnTime(t testing.TB) time.Duration {
	t.Helper()
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		t.Fatal(err)
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}
