package hardware_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/hardware"
	"github.com/ingot-metal/ingot/cli/view"
)

const document = `{"system":{"vendor":"Dell Inc.","product":"R650","serial":"ABC\u001b[2J","uuid":"4c4c"},
"cpu":{"model":"EPYC 9654","sockets":2,"cores":192,"threads":384},
"memory":{"total_bytes":137438953472,"slots":32,"dimms":[{"locator":"A1","bank":"P0","size_bytes":137438953472,
 "speed_mts":4800,"type":"DDR5","manufacturer":"Hynix","part_number":"PN1","serial":"SN1"}]},
"disks":[{"name":"sda","model":"HUS728T8","serial":"K5GX","wwn":"naa.5000","size_bytes":8001563222016,"rotational":true,
 "transport":"ata","firmware":"V8GN"}],
"arrays":[{"name":"md0","level":"raid1","disks":2,"active":true,"members":["sda","sdb"]},
 {"name":"md1","level":"raid1","disks":2,"missing":1,"active":true,"members":["sda"]},
 {"name":"md2","level":"raid5","disks":3,"missing":1,"active":true,"rebuilding":true,"members":["sda","sdb","sdc"]},
 {"name":"md3","level":"","disks":0,"active":false,"members":["sdd"]}],
"nics":[{"name":"eth1","mac":"02:00:00:00:00:02","driver":"mlx5_core","link_up":true,"speed_mbps":25000,
 "firmware":"26.36",
 "neighbours":[{"chassis":"02:aa:00:00:00:01","port":"Ethernet7","system":"leaf1"}]},
 {"name":"eth2","mac":"02:00:00:00:00:03","link_up":false}],
"pci":[],"accelerators":[{"address":"0000:17:00.0","vendor":"10de","device":"2330","driver":"nvidia",
 "driver_version":"550","memory_bytes":85899345920,"link_best":"32.0 GT/s x16"}],
"firmware":[{"component":"bios","version":"1.2.3"}],"tpm":{"present":true,"version":"2.0"},"bmc":{"present":false},
"os":{"name":"Debian GNU/Linux 12","kernel":"6.1"},"missing":["dimms: the SMBIOS table is damaged"]}`

func TestInventory(t *testing.T) {
	t.Parallel()
	at := timestamppb.New(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	got := hardware.Inventory(view.Style{}, &pb.Inventory{MachineId: "m-1", Document: []byte(document), ReportedAt: at,
		Changes: []*pb.InventoryChange{
			{
				At:   at,
				Part: "disks",
				Item: "S3 (HGST)",
				Kind: "added",
			},
			{At: at, Part: "disks", Item: "S2 (HGST)", Kind: "removed"},
			{At: at, Part: "nics", Item: "02:00:00:00:00:02", Kind: "changed", Field: "neighbours", After: "leaf1 Ethernet7"},
		}, ChangesLeftOut: 2})
	for _, want := range []string{
		"Processors:        EPYC 9654 (2 sockets, 192 cores, 384 threads)\n", "Memory:            128 GiB in 1 of 32 slots\n",
		"TPM:               2.0\n", "BMC:               none\n", "Serial:            ABC[2J\n",
		"A1 P0  128 GiB  DDR5  4800  Hynix  PN1   SN1\n",
		"sda   K5GX    HUS728T8  7.3 TiB  ata rotational  V8GN      naa.5000\n",
		"md0   raid1  2      sda sdb      whole\n", "md1   raid1  2      sda          lacks 1\n",
		"md2   raid5  3      sda sdb sdc  lacks 1, being rebuilt\n", "md3   -      -      sdd          not running\n",
		"eth1  02:00:00:00:00:02  25000 Mbit/s  leaf1      Ethernet7  mlx5_core  26.36\n",
		"eth2  02:00:00:00:00:03  down          -          -          -          -\n",
		"0000:17:00.0  10de:2330  -       80 GiB  32.0 GT/s x16  nvidia 550  -\n", "bios      1.2.3\n",
		"Not read:\n  dimms: the SMBIOS table is damaged\n", "  + disks S3 (HGST)\n  - disks S2 (HGST)\n",
		"  ~ nics 02:00:00:00:00:02 neighbours: none → leaf1 Ethernet7\n  and 2 more\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Count(got, "Changed, by the inventory of ") != 1 {
		t.Error(got)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 64 << 30: "64 GiB",
		1 << 60: "1024 PiB"} {
		if got := hardware.Size(n); got != want {
			t.Errorf("%d is %s, not %s", n, got, want)
		}
	}
}
