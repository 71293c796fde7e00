package hardware_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/hardware"
)

// server is a document as an agent sends it.
const server = `{"collected_at":"2026-05-01T11:00:00Z","system":{"product":"R650","serial":"ABC"},
"cpu":{"model":"EPYC 9654","cores":96},
"memory":{"total_bytes":64,"usable_bytes":60,"slots":4,"dimms":[
 {"locator":"A1","bank":"P0","size_bytes":32,"serial":"D1"},
 {"locator":"A2","bank":"P0","size_bytes":32,"serial":"D2"}]},
"disks":[{"name":"sda","model":"HGST","serial":"S1","size_bytes":4000,"firmware":"A1"},
 {"name":"sdb","model":"HGST","serial":"S2","size_bytes":4000,"firmware":"A1"}],
"arrays":[{"name":"md0","level":"raid1","disks":2,"missing":0,"active":true,"members":["sda","sdb"]}],
"nics":[{"name":"eth0","mac":"02:00:00:00:00:01","link_up":true,"speed_mbps":25000,
 "neighbours":[{"chassis":"02:aa:00:00:00:01","port":"Ethernet7","system":"leaf1"}]},
 {"name":"eth1","mac":"02:00:00:00:00:02","link_up":false}],
"pci":[{"address":"0000:17:00.0","class":"030200","vendor":"10de","device":"2330","driver":"nvidia"}],
"accelerators":[{"address":"0000:17:00.0","vendor":"10de","device":"2330","serial":"GPU-1","link":"2.5 GT/s x16"}],
"firmware":[{"component":"bios","version":"1.0"}],"tpm":{"present":true,"version":"2.0"},
"os":{"kernel":"6.1","boot_id":"b1"}}`

func changes(t *testing.T, before, after string) string {
	t.Helper()
	list, err := hardware.Differences([]byte(before), []byte(after))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range list {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s>%s", c.Kind, c.Part, c.Item, c.Field, c.Before,
			c.After)))
	}
	return strings.Join(out, "; ")
}

// edited is the server after replacements, in pairs.
func edited(t *testing.T, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(server, pairs[i]) {
			t.Fatalf("nothing to replace: %s", pairs[i])
		}
	}
	out := strings.NewReplacer(pairs...).Replace(server)
	if !json.Valid([]byte(out)) {
		t.Fatalf("no JSON: %s", out)
	}
	return out
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pairs []string
		want  string
	}{
		"nothing": {nil, ""},
		"what changes by itself": {[]string{`"b1"`, `"b2"`, `"sda"`, `"sdq"`, `"speed_mbps":25000`, `"speed_mbps":100`,
			"2.5 GT/s x16", "32.0 GT/s x16", `"usable_bytes":60`, `"usable_bytes":59`, "11:00:00Z", "12:00:00Z",
			`"driver":"nvidia"`, `"driver":"vfio-pci"`}, ""},
		"a disk is replaced": {[]string{`"serial":"S2"`, `"serial":"S3"`},
			"removed disks S2 (HGST, 4000)  >; added disks S3 (HGST, 4000)  >"},
		"a module is another": {[]string{`"serial":"D2"`, `"serial":"D9"`}, "changed dimms A2 P0 serial D2>D9"},
		"a module is gone": {[]string{`,
 {"locator":"A2","bank":"P0","size_bytes":32,"serial":"D2"}`, "",
			`"total_bytes":64`, `"total_bytes":32`},
			"removed dimms A2 P0 (32, D2)  >; changed memory  total_bytes 64>32"},
		"firmware": {[]string{`"firmware":"A1"},`, `"firmware":"A2"},`, `"version":"1.0"`, `"version":"1.1"`},
			"changed disks S1 firmware A1>A2; changed firmware bios version 1.0>1.1"},
		"another port of the switch": {[]string{"Ethernet7", "Ethernet8"},
			"changed nics 02:00:00:00:00:01 neighbours leaf1 Ethernet7>leaf1 Ethernet8"},
		"unplugged": {[]string{`"speed_mbps":25000,
 "neighbours":[{"chassis":"02:aa:00:00:00:01","port":"Ethernet7","system":"leaf1"}]`, `"speed_mbps":0`},
			"changed nics 02:00:00:00:00:01 neighbours leaf1 Ethernet7>"},
		"an accelerator is gone": {[]string{
			`{"address":"0000:17:00.0","vendor":"10de","device":"2330","serial":"GPU-1","link":"2.5 GT/s x16"}`, "",
			`{"address":"0000:17:00.0","class":"030200","vendor":"10de","device":"2330","driver":"nvidia"}`, ""},
			"removed accelerators 0000:17:00.0 (10de, 2330)  >; removed pci 0000:17:00.0 (030200, 10de, 2330)  >"},
		"an array has lost a disk": {[]string{`"missing":0,"active":true,"members":["sda","sdb"]`,
			`"missing":1,"active":true,"members":["sdb"]`}, "changed arrays md0 missing 0>1"},
		"another system": {[]string{`"kernel":"6.1"`, `"kernel":"6.12"`}, "changed os  kernel 6.1>6.12"},
	} {
		if got := changes(t, server, edited(t, c.pairs...)); got != strings.TrimSpace(c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// A system that cannot read a part has not lost it.
func TestHolesAreNoDifferences(t *testing.T) {
	t.Parallel()
	for _, hole := range []string{
		`{"disks":[],"missing":["disks: no sys/block"]}`,
		`{"memory":{"dimms":[],"total_bytes":1},"missing":["dimms: SMBIOS tables are not readable without root",
		  "memory: x"]}`,
		`{"nics":[{"name":"eth0","mac":"02:00:00:00:00:01"},{"name":"eth1","mac":"02:00:00:00:00:02"}],
		  "missing":["neighbours: not listened for yet"]}`,
		`{"nics":[{"name":"eth0","mac":"02:00:00:00:00:01"},{"name":"eth1","mac":"02:00:00:00:00:02"}],
		  "missing":["neighbours of eth0: the interface is down"]}`,
		`{"system":{"serial":"other"},"missing":["system serials: not readable without root"]}`,
		`{"tpm":null,"bmc":null}`, `{}`,
	} {
		if got := changes(t, server, hole); got != "" {
			t.Errorf("%s: %s", hole, got)
		}
		if got := changes(t, hole, server); got != "" {
			t.Errorf("before: %s: %s", hole, got)
		}
	}
}

// Disks without serials differ by their number, and a document from anybody breaks nothing.
func TestTwinsAreCounted(t *testing.T) {
	t.Parallel()
	disk := `{"model":"X"}`
	before := `{"disks":[` + disk + `,` + disk + `]}`
	if got := changes(t, before, `{"disks":[`+disk+`]}`); got != "removed disks without a name #2 (X)  >" {
		t.Error(got)
	}
	for _, bad := range []string{"", "[]", "{"} {
		if _, err := hardware.Differences([]byte(bad), []byte(server)); err == nil {
			t.Errorf("%q is no inventory", bad)
		}
	}
	for _, odd := range []string{`{"disks":[1,null]}`, `{"nics":[{"mac":{}}],"missing":[1]}`, `{"memory":[]}`} {
		_ = changes(t, odd, server)
	}
}
