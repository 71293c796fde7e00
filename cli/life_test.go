package cli

import (
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func TestNodeCommands(t *testing.T) {
	golden(t, "node", fleet,
		"node list",
		"node list --state install_failed --filter group=rack-7 --limit 1 -o json",
		"node list -o name",
		"node get machine-1",
		"node get machine-2 -o yaml",
		"node get machine-9",
		"node update machine-1 --plan repave-small",
		"node update machine-1 --plan '' --group rack-8 -o name",
		"node update machine-1",
		"node transition machine-1 retired --comment broken --request-id r-1",
		"node transition machine-1 retired --request-id r-1 -o json",
		"node transition machine-1 reprovision --image debian-12 --request-id r-2 --no-wait",
		"node transition machine-1 reprovision --image debian-12 --dry-run",
		"node transition machine-1 retired --dry-run",
		"node transition machine-1 pending --request-id r-3",
		"node transition machine-1 pending --force --request-id r-3",
		"node transition machine-1 active --request-id r-4",
		"node transition machine-1 nowhere",
		"node transition machine-1 deprovisioning --request-id r-5",
		"node transition machine-1 deprovisioning --request-id r-5 --yes",
		"node history machine-1 --limit 2 --offset 1",
		"node history machine-1 -o json",
		"node history machine-9",
		"node approve 52:54:00:00:00:01 --machine m-9 --site berlin --plan repave --group rack-7 --label env=prod "+
			"--bmc-endpoint 10.0.0.2 --bmc-credentials rack-42 --default-image-ref debian-12 --comment new --request-id r-5",
		"node approve 52:54:00:00:00:01 --request-id r-6 -o name",
		"node approve 52:54:00:00:00:77 --request-id r-7",
		"node group set rack-7 --auto-promote",
		"node group set rack-7 -o json",
		"node group list",
		"__complete node transition machine-1 re",
		"__complete node group set ''",
	)
}

func TestScriptCommands(t *testing.T) {
	golden(t, "script", fleet,
		"script add fix-raid-1 testdata/fix.sh",
		"script add fix-raid-1 testdata/fix.sh --interpreter /usr/bin/python3 --sha256 f00d --destructive -o json",
		"script add taken testdata/fix.sh",
		"script add fix-raid-1 testdata/none.sh",
		"script add empty -",
		"script list",
		"script list -o name",
		"script list -o yaml",
		"script show fix-raid-1",
		"script show fix-raid-1 -o json",
		"script show nothing",
		"script remove fix-raid-1",
		"script remove wipe-2",
		"__complete script show ''",
	)
}

func TestSSHCommands(t *testing.T) {
	golden(t, "ssh", fleet,
		"ssh credentials list",
		"ssh credentials list -o json",
		"ssh credentials list -o name",
		"ssh credentials set rack-42 --username root --key-file testdata/key",
		"ssh credentials set rack-42 --username root --key-file testdata/key -o yaml",
		"ssh credentials set rack-42 --username root",
		"ssh credentials set rack-42 --username root --key-file testdata/none",
		"ssh credentials delete old",
		"ssh credentials delete rack-42",
		"__complete ssh credentials delete ''",
	)
	f := fleet()
	got := f.run(t, "ssh", "credentials", "set", "rack-42", "--username", "root", "--key-file", "testdata/key")
	if strings.Contains(got.out+got.err, "a private key") {
		t.Errorf("the private key is shown: %+v", got)
	}
}

// TestReturnsOfMachines: one call with the plan of the way, and the work that it has started.
func TestReturnsOfMachines(t *testing.T) {
	golden(t, "rma", func() *fakeServer { return reimaging(pb.Operation_SUCCEEDED, nil) },
		"rma machine-1 --request-id r-1 --no-wait",
		"rma machine-1 --return --request-id r-2 --no-wait -o json",
		"rma --return",
		"__complete rma ''",
	)
	golden(t, "rma-refused", func() *fakeServer {
		f := fleet()
		f.fail = map[string]error{"StartRun": refuse(9, pb.Reason_MACHINE_BLOCKED, "the machine is flagged RMA",
			map[string]string{"machine_id": "machine-4"})}
		return f
	}, "rma machine-4 --request-id r-1 --no-wait")
}

func TestReturnsAreFollowed(t *testing.T) {
	got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "rma", "machine-1")
	if got.code != 0 || !inOrder(got.out, "→ Setting netboot…", "✓") {
		t.Errorf("%+v", got)
	}
	got = reimaging(pb.Operation_FAILED, &pb.ErrorStatus{Code: "STEP_TIMEOUT", Message: "slow"}).run(t, "rma", "machine-1",
		"--return")
	if got.code != command.ExitFailed {
		t.Errorf("%+v", got)
	}
}
