package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// planned returns the machines that a file would register beside the existing ones, or its errors.
func planned(f *rackFile, err error, have ...*pb.Machine) string {
	if err != nil {
		return err.Error() + "\n"
	}
	k := known{map[string]*pb.Machine{}, map[string]string{}}
	for _, m := range have {
		k.machines[m.GetMachineId()] = m
		for _, c := range claimsOf(m) {
			k.owners[c.what] = m.GetMachineId()
		}
	}
	p := &rackPlan{file: f}
	for _, row := range f.rows {
		p.take(k, row, f.machine(row), false)
	}
	if err := f.err(); err != nil {
		_, lines, _ := strings.Cut(err.Error(), "\n")
		return lines + "\n"
	}
	var b strings.Builder
	for _, m := range p.machines {
		s := m.GetSpec()
		fmt.Fprintln(&b, strings.Join(append([]string{m.GetMachineId(), s.GetSite()}, s.GetMacAddresses()...), " "))
	}
	return b.String()
}

// TestCases: ingot import -f and ingot rack import read every file of these folders of testdata/cases in the same way.
func TestCases(t *testing.T) {
	for _, folder := range []string{"import", "dialects"} {
		t.Run(folder, func(t *testing.T) { readAlike(t, folder) })
	}
}

func readAlike(t *testing.T, folder string) {
	t.Chdir("testdata/cases/" + folder)
	files, err := filepath.Glob("*.csv")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".csv") + ".want")
		if err != nil {
			t.Errorf("%s has no .want beside it: %v", file, err)
		}
		if got := planned(readRack(file, raw)); got != string(want) {
			t.Errorf("rack import %s:\n%swant\n%s", file, got, want)
		}
		f, err := commands{app: &command.App{}}.readMachines(file)
		if got := planned(f, err); got != string(want) {
			t.Errorf("import -f %s:\n%swant\n%s", file, got, want)
		}
	}
}

func netboxFile(t *testing.T, name string) (*rackFile, error) {
	t.Helper()
	raw, err := os.ReadFile("testdata/cases/netbox/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return readRack(name, raw)
}

func TestNetBoxNamesAreNoIdentity(t *testing.T) {
	f, err := netboxFile(t, "nb-a.json")
	if err != nil {
		t.Fatal(err)
	}
	berlin := f.machine(f.rows[0])
	f, err = netboxFile(t, "nb-b.json")
	got := planned(f, err, berlin)
	for _, part := range []string{"nb-b.json:1:1: serial: machine node01 (site berlin) has serial number BER1", "(site oslo) has OSL1"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
	berlin.Spec.Serial = ""
	if got := planned(
		f,
		nil,
		berlin,
	); !strings.Contains(
		got,
		"machine node01 is in site berlin, and this row in site oslo",
	) {
		t.Errorf("without a serial number: %q", got)
	}
	other := &pb.Machine{
		MachineId: "m-31",
		Spec:      &pb.MachineSpec{Site: "lab", BmcEndpoint: "redfish://198.51.100.15:443/"},
	}
	f, err = netboxFile(t, "b3.csv")
	if got := planned(
		f,
		err,
		other,
	); !strings.Contains(
		got,
		"b3.csv:2:28: bmc_endpoint: 198.51.100.15 belongs to machine m-31",
	) {
		t.Errorf("one BMC of two machines: %q", got)
	}
}

func TestNetBoxInterfaces(t *testing.T) {
	read := func(name string) (*rackFile, error) {
		f, err := netboxFile(t, "nbx-dev.json")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile("testdata/cases/netbox/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return f, f.addInterfaces(name, raw)
	}
	if _, err := read("nbx-if.json"); err == nil || !strings.Contains(err.Error(), "2 of 60 entries") {
		t.Errorf("the first page: %v", err)
	}
	f, err := read("if-semi.csv")
	if got := planned(f, err); !strings.Contains(got, "nbx03 berlin 52:54:00:aa:00:03\n") {
		t.Errorf("semicolons: %q", got)
	}
	if _, err := read("nbx-dev.json"); err == nil || !strings.Contains(err.Error(), "no interface") {
		t.Errorf("a table of something else: %v", err)
	}
	// Names of devices are those of one site alone.
	for name, want := range map[string]string{"two-sites-if.json": "node01 berlin 52:54:00:ab:00:01 52:54:00:ab:00:03\n",
		"two-sites-if.csv": "one-site.json:1:1: machine_id: two-sites-if.csv has interfaces of two devices called node01"} {
		f, err := netboxFile(t, "one-site.json")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile("testdata/cases/netbox/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := planned(f, f.addInterfaces(name, raw)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := netboxFile(t, "page-twice.json"); err == nil || !strings.Contains(err.Error(), "2 of 3 entries") {
		t.Errorf("one page twice: %v", err)
	}
	f, err = netboxFile(t, "pages-that-overlap.json")
	if got := planned(f, err); got != "p1 s\np2 s\np3 s\n" {
		t.Errorf("pages that overlap: %q", got)
	}
	pages := `{"count":2,"next":"x","results":[{"name":"a","site":{"slug":"s"}}]}
{"count":2,"next":null,"previous":"x","results":[{"name":"b","site":{"slug":"s"}}]}`
	if got := planned(readRack("pages", []byte(pages))); got != "a s\nb s\n" {
		t.Errorf("two pages: %q", got)
	}
}
