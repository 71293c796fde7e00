package operationlog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// ended is an operation that has ended, of a machine of its own.
func ended(t *testing.T, s *store.Store, machineID string) string {
	t.Helper()
	storetest.Register(t, s, machineID)
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: machineID, RequestID: "r",
		Type: fleet.EnterMaintenance})
	if a := storetest.Decide(t, s, op.GetOperationId(),
		operation.CancelAsked{Actor: "tester"}); a.Phase != operation.Canceled {
		t.Fatalf("it is %s", a.Phase)
	}
	return op.GetOperationId()
}

// An agent that says more than any work has to say must not fill the database.
func TestTheLogOfAnOperationIsBounded(t *testing.T) {
	s := storetest.New(t)
	id := ended(t, s, "m-1")
	piece := []byte(strings.Repeat("x", 1<<20))
	taken := 0
	for range 100 {
		seq, err := s.Logs.AppendLog(t.Context(), id, "stdout", "reboot", piece, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		if seq > 0 {
			taken++
		}
	}
	logs, err := s.Logs.LogsOf(t.Context(), id, 0, 1000)
	if err != nil || len(logs) != taken {
		t.Fatalf("%d pieces of %d, %v", len(logs), taken, err)
	}
	bytes := 0
	for _, l := range logs {
		bytes += len(l.GetData())
	}
	if last := logs[len(logs)-1]; bytes > 17<<20 || bytes < 15<<20 || last.GetStream() != "controller" ||
		!strings.Contains(string(last.GetData()), "ends here") {
		t.Errorf("%d bytes, and last %s: %s", bytes, last.GetStream(), last.GetData()[:min(len(last.GetData()), 100)])
	}
}

func TestOldLogsAreRemovedOnceTheyAreKept(t *testing.T) {
	s := storetest.New(t)
	var all []string
	for _, m := range []string{"m-1", "m-2", "m-3"} {
		id := ended(t, s, m)
		all = append(all, id)
		if _, err := s.Logs.AppendLog(t.Context(), id, "stdout", "one", []byte("hello\n"), storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Register(t, s, "m-4")
	running := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-4", RequestID: "r",
		Type: fleet.EnterMaintenance}).GetOperationId()
	if ids, next, err := s.Logs.OldLogs(t.Context(), "", storetest.Now().Add(-time.Hour), 2); err != nil ||
		len(ids) != 0 ||
		next != "" {
		t.Errorf("younger than an hour: %v, %q, %v", ids, next, err)
	}
	var got []string
	for after := ""; ; {
		ids, next, err := s.Logs.OldLogs(t.Context(), after, storetest.Now().Add(time.Hour), 2)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids...)
		if after = next; after == "" {
			break
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("old are %v of %v, without %s", got, all, running)
	}
	full := errors.New("the disk is full")
	err := s.Logs.RemoveLog(t.Context(), all[0], storetest.Now(),
		func([]*baremetalv1.LogChunk) (string, error) { return "", full })
	if !errors.Is(err, full) {
		t.Errorf("removed without being kept: %v", err)
	}
	if logs, err := s.Logs.LogsOf(t.Context(), all[0], 0, 10); err != nil || len(logs) != 1 ||
		string(logs[0].GetData()) != "hello\n" {
		t.Errorf("after a full disk: %v, %v", logs, err)
	}
	for range 2 { // the second time there is nothing to keep
		var kept []*baremetalv1.LogChunk
		err = s.Logs.RemoveLog(t.Context(), all[0], storetest.Now(), func(pieces []*baremetalv1.LogChunk) (string, error) {
			kept = pieces
			return "/somewhere/else", nil
		})
		logs, readErr := s.Logs.LogsOf(t.Context(), all[0], 0, 10)
		if err != nil || readErr != nil || len(logs) != 1 ||
			!strings.Contains(string(logs[0].GetData()),
				"1 pieces were removed by their age; they are kept in /somewhere/else") {
			t.Errorf("%v, %v, %v of %v", logs, err, readErr, kept)
		}
	}
}
