package e2e

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestTheStrangersExamples runs the three examples of the API's design with a client that knows nothing but api/.
func TestTheStrangersExamples(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	// The boot entry of machine-2 cannot be set the first three times: the try and its retries. Nothing has been written
	// then, so that no install attempt is counted, and the machine may be reimaged again at once.
	script := "machine-2/netboot:fail-before@1,machine-2/netboot:fail-before@2,machine-2/netboot:fail-before@3"
	w, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir(), Script: script, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	site := c.NewSite(t, "example", w, harness.MachineOptions{Script: script})
	site.WaitConnected()
	conn, err := dialSeed(c.Front.Address(), c.Token(), c.Controller().RootPEM())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stranger := &seedClient{baremetalv1.NewMachineServiceClient(conn), baremetalv1.NewOperationServiceClient(conn), t.Logf}
	if err := stranger.importMachines(t.Context(), 3); err != nil {
		t.Fatalf("import 3: %v", err)
	}
	if err := stranger.example1(t.Context()); err != nil {
		t.Fatalf("example 1: %v", err)
	}
	if err := stranger.example2(t.Context()); err != nil {
		t.Fatalf("example 2: %v", err)
	}
	if err := stranger.example3(t.Context()); err != nil {
		t.Fatalf("example 3: %v", err)
	}
}

func TestTheStrangerKnowsNothingButTheAPI(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "seedclient_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	const tree = "github.com/ingot-metal/ingot/"
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		if strings.HasPrefix(path, tree) && !strings.HasPrefix(path, tree+"api/") {
			t.Errorf("the stranger imports %s", path)
		}
	}
}
