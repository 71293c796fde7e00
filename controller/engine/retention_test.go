package engine_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/session"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestOldLogsBecomeFiles(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1"}, "tester",
		time.Now()); err != nil {
		t.Fatal(err)
	}
	op, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.EnterMaintenance, Actor: "tester"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id := op.GetOperationId()
	if _, err := s.Operations.Decide(t.Context(), id, operation.CancelAsked{Actor: "tester"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"hello\n", "\xff\xfe"} {
		if _, err := s.Logs.AppendLog(t.Context(), id, "stdout", "one", []byte(text), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "logs")
	e, err := engine.New(engine.Config{
		Store: s, Sessions: session.NewRegistry(), Clock: clock.Real(), Logger: testkit.Logger(t),
		ControllerID: ids.New(ids.Controller), Version: "v-test",
		Retention: engine.Retention{Logs: time.Nanosecond, ExportDir: dir, States: time.Nanosecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// What retention removes is outside the chain.
	storetest.Intact(t, s, "m-1")
	storetest.Intact(t, s, "")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	f, err := os.Open(filepath.Join(dir, files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), `"data":"hello\n"`) ||
		!strings.Contains(string(text), `"bytes":"//4="`) {
		t.Errorf("%s, %v", text, err)
	}
	logs, err := s.Logs.LogsOf(t.Context(), id, 0, 10)
	if err != nil || len(logs) != 1 || !strings.Contains(string(logs[0].GetData()), filepath.Join(dir, files[0].Name())) {
		t.Errorf("%v, %v", logs, err)
	}
}
