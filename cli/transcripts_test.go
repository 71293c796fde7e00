package cli

import (
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"strings"
	"testing"
)

func TestMAASCommands(t *testing.T) {
	golden(t, "maas", fleet,
		"maas list",
		"maas list -o json",
		"maas list -o name",
		"maas set default --endpoint http://maas.example:5240/MAAS --key-file testdata/maas.key",
		"maas set lab --endpoint https://lab.example/MAAS --key-file testdata/maas.key --user-data-file testdata/fix.sh "+
			"--retain-machines -o yaml",
		"maas set default --endpoint http://maas.example:5240/MAAS --key-file testdata/fix.sh",
		"maas set default --endpoint http://maas.example:5240/MAAS --key-file testdata/none",
		"maas set default --key-file testdata/maas.key",
		"maas delete lab",
		"maas delete default",
		"maas delete nowhere",
		"__complete maas delete ''",
	)
	got := fleet().run(t, "maas", "set", "default", "--endpoint", "http://maas.example:5240/MAAS", "--key-file",
		"testdata/maas.key")
	if strings.Contains(got.out+got.err, "secret") {
		t.Errorf("the key is shown: %+v", got)
	}
}

func TestPowerCommands(t *testing.T) {
	golden(t, "power", fleet,
		"power on machine-1 --request-id r-1 --no-wait",
		"power off machine-1 --request-id r-2 --no-wait -o name",
		"power off",
		"__complete power off ''",
	)
}

func TestClusterCommands(t *testing.T) {
	golden(t, "cluster", fleet,
		"cluster set prod-1 --kubeconfig testdata/kubeconfig",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context by-certificate -o json",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context by-program",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context open",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context nobody",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context none",
		"cluster set prod-1 --kubeconfig testdata/key",
		"cluster set prod-1 --kubeconfig testdata/none",
		"cluster set prod-1",
		"cluster list",
		"cluster list -o name",
		"cluster list -o yaml",
		"cluster get prod-1",
		"cluster get prod-1 -o json",
		"cluster get nothing",
		"cluster delete old",
		"cluster delete prod-1",
		"__complete cluster get ''",
	)
	f := fleet()
	for _, context := range []string{"prod", "by-certificate"} {
		got := f.run(t, "cluster", "set", "prod-1", "--kubeconfig", "testdata/kubeconfig", "--kube-context", context)
		if strings.Contains(got.out+got.err, "s3cret") || strings.Contains(got.out+got.err, "a2V5") {
			t.Errorf("credentials are shown: %+v", got)
		}
	}
}

// TestWorkInClusters: each is one run of the plan that it is named after.
func TestWorkInClusters(t *testing.T) {
	golden(t, "cluster-work", func() *fakeServer { return reimaging(pb.Operation_SUCCEEDED, nil) },
		"cluster join machine-1 --request-id r-1 --no-wait",
		"cluster drain machine-1 --request-id r-2 --no-wait -o json",
		"cluster uncordon machine-1 --request-id r-3 --no-wait",
		"cluster leave machine-1 --request-id r-4 --no-wait",
		"cluster drain",
		"__complete cluster join ''",
	)
}

func TestBudgetCommands(t *testing.T) {
	golden(t, "budget", fleet,
		"budget list",
		"budget list -o name",
		"budget list -o json",
		"budget set all --domain fleet --at-once 50 --per-hour 200",
		"budget set racks --domain label:rack --percent 10 -o yaml",
		"budget set old --domain site --value cellar --at-once 1 --per-day 3 -o name",
		"budget set nothing",
		"budget set",
		"budget delete racks",
		"budget delete racks -o name",
		"budget delete nobody",
		"budget slots",
		"budget slots -o name",
		"budget slots -o json",
		"budget release machine-1 --comment looked",
		"budget release machine-1 -o json",
		"budget release machine-2",
		"budget release machine-9",
		"server freeze --comment stop",
		"server freeze -o name",
		"__complete budget delete ''",
		"__complete budget release ''",
	)
}

func TestApprovalPolicyCommands(t *testing.T) {
	golden(t, "approval-policy", fleet,
		"approval-policy list",
		"approval-policy list -o name",
		"approval-policy set prod --select labels.env=prod --machines 5",
		"approval-policy set everything -o yaml",
		"approval-policy set few --machines -1",
		"approval-policy set",
		"approval-policy delete prod",
		"approval-policy delete nobody",
	)
}

// TestSeveralMachines: more than one machine are one rollout over a selection, asked for once.
func TestSeveralMachines(t *testing.T) {
	golden(t, "several", fleet,
		"provision machine-[1-3] --image debian-13 --request-id p-1 --yes",
		"provision machine-[1-3] --image debian-13 --request-id p-1",
		"provision --select rack=r42,state=NEW --image debian-13 --request-id p-1 --yes --no-wait --max-failures 3",
		"provision --select rack=r42 --image debian-13 --request-id p-1 --dry-run -o name",
		"decommission machine-[1-3] --mode full-decommission --enter-maintenance --request-id d-1 --yes --no-wait",
		"onboard -f testdata/machines.txt --path adopt --request-id o-1 --dry-run -o name",
		"provision --select rack=none --image debian-13 --request-id p-1 --yes",
		"provision machine-1 machine-2 machine-4 --image debian-13 --request-id again --no-wait -o name",
		"provision machine-1 --image debian-13 --request-id again --no-wait -o name",
		"reboot machine-1 machine-2 machine-4 --request-id again --yes --no-wait",
		"provision machine-4 machine-[1-2] --image debian-13 --request-id again --dry-run -o name",
		"provision machine-1 --all --image debian-13",
		"provision machine-[3-1] --image debian-13 --request-id p-1",
		"provision -f testdata/machines.txt --image debian-13 --request-id p-1 --yes --no-wait -o name",
		"reboot machine-1 machine-2 machine-1 --mode force --request-id p-2 --yes --no-wait -o name",
		"power off machine-[1-2] --request-id p-3 --yes --no-wait -o name",
		"enter-maintenance --all --comment moving --request-id p-4 --yes --no-wait -o name",
		"machine delete machine-[1-2] --yes",
		"machine delete machine-[1-2]",
	)
}

// TestRackImport: errors are named by line and column before anything is written; a known machine keeps the fields that
// are not in the file.
func TestRackImport(t *testing.T) {
	golden(
		t,
		"rack",
		fleet,
		"rack import testdata/rack/rack42.csv --dry-run --bmc-credentials rack-42",
		"rack import testdata/rack/rack42.csv --bmc-credentials rack-42 --site r42",
		"rack import testdata/rack/rack42.csv --bmc-credentials rack-42 --bmc-username admin --bmc-password-file testdata/maas.key",
		"rack import testdata/rack/rack42.csv --bmc-credentials none",
		"rack import testdata/rack/rack-bad.csv",
		"rack import testdata/rack/rack-media.csv --bmc-credentials rack-42 --dry-run -o json",
		"rack import testdata/rack/rack-media-bad.csv --bmc-credentials rack-42",
		"rack import testdata/rack/netbox_devices.csv --interfaces testdata/rack/netbox_interfaces.csv --dry-run",
		"rack import testdata/rack/netbox_devices.json --dry-run -o name",
		"rack import testdata/machines.txt",
		"rack import testdata/none.csv",
	)
}

// TestStatus is one page of the fleet, and for programs one document.
func TestStatus(t *testing.T) {
	golden(t, "status", func() *fakeServer {
		f := fleet()
		m := &pb.Machine{MachineId: "machine-9", Status: &pb.MachineStatus{
			EffectiveState: pb.MachineStatus_ATTENTION, AttentionReason: "NODE_OFFLINE",
			AttentionMessage: "the machine's agent has been silent; see to its power and its network",
		}}
		f.machines = append(f.machines, m)
		return f
	}, "status", "status -o json", "status -o name")
}

// TestMistypedCommands are errors at every depth, with what may have been meant.
func TestMistypedCommands(t *testing.T) {
	golden(t, "mistyped", fleet, "rebot machine-1", "machine gte machine-1", "rollout frobnicate", "node group lst")
}

func TestRolloutCommands(t *testing.T) {
	digest := strings.Repeat("5f", 32)
	golden(t, "rollout", fleet,
		"rollout preview --filter site=berlin --type REPAVE --image ubuntu-2204 --canary 1 --percents 50,100 "+
			"--max-in-flight 3 --domain label:rack --max-failures 2 --soak 10m",
		"rollout preview --filter site=berlin --type REBOOT -o name",
		"rollout preview --type REBOOT",
		"rollout preview -f testdata/rollout.yaml --max-in-flight 9 -o name",
		"rollout preview --filter site=berlin --soak soon",
		"rollout create --filter site=berlin --type REPAVE --digest "+digest+" --request-id r-1",
		"rollout create --filter site=berlin --type REPAVE --digest "+digest+" --request-id r-1 --require-approval",
		"rollout create --filter site=berlin --type REPAVE --digest old --request-id r-1",
		"rollout create --filter site=berlin --type REPAVE",
		"rollout create --filter site=berlin --type REBOOT --dry-run -o name",
		"rollout get ro-1",
		"rollout get ro-2",
		"rollout list",
		"rollout list --filter state=RUNNING -o name",
		"rollout machines ro-1 --filter wave=2",
		"rollout machines ro-1 -o name",
		"rollout approve ro-1 --digest "+digest,
		"rollout approve ro-1 --digest mine",
		"rollout pause ro-1",
		"rollout resume ro-1 -o name",
		"rollout cancel ro-1 --operations",
		"rollout watch ro-1",
		"rollout watch ro-1 -o name",
		"rollout watch ro-2",
		"__complete rollout get ''",
	)
}

func TestDiscoverCommand(t *testing.T) {
	const discover = "discover --bmc 10.42.1.0/24,10.43.1.1 --credentials rack-42 --site r42"
	golden(t, "discover", fleet,
		discover,
		discover+" -o name --port 8443",
		discover+" --register machine- --rack r42 --dry-run",
		discover+" --register machine- --rack r42",
		discover+" --register m- --by-serial -o json",
		discover+" --rack r42",
		"discover --bmc 10.42.1.0/24",
		"__complete discover --credentials ''",
	)
}
