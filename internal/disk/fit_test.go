package disk_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/disk"
)

func rules(t interface{ Fatal(...any) }, list ...string) []disk.Rule {
	out, err := disk.ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func rule(t interface{ Fatal(...any) }, s string) disk.Rule {
	r, err := disk.ParseRule(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	noMatch     = baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH
	tooLarge    = baremetalv1.Reason_IMAGE_TOO_LARGE
	unsupported = baremetalv1.Reason_IMAGE_UNSUPPORTED
	fits        = baremetalv1.Reason_REASON_UNSPECIFIED
)

// TestAnInstallationThatCannotSucceedIsKnownBeforehand: what the inventory rules out is a misfit; what it does not know
// is none.
func TestAnInstallationThatCannotSucceedIsKnownBeforehand(t *testing.T) {
	t.Parallel()
	a := disk.Device{Path: "/dev/sda", Serial: "A", Size: 100 << 30}
	b := disk.Device{Path: "/dev/sdb", Serial: "B", Size: 200 << 30}
	nameless := disk.Device{Path: "/dev/sdc", Size: 100 << 30}
	usb := disk.Device{Path: "/dev/sdd", Serial: "U", Size: 100 << 30, Removable: true}
	image := disk.Image{Ref: "os", Arch: "amd64", Firmware: []string{"uefi"}, RawSize: 10 << 30}
	machine := func(d ...disk.Device) disk.Machine {
		return disk.Machine{Arch: "amd64", Firmware: "uefi", Disks: d, DisksKnown: true}
	}
	for name, c := range map[string]struct {
		m         disk.Machine
		rule      string
		protected []string
		change    func(*disk.Machine, *disk.Image)
		want      baremetalv1.Reason
	}{
		"one disk":                            {machine(a), "", nil, nil, fits},
		"two disks and no rule":               {machine(a, b), "", nil, nil, noMatch},
		"two disks, one removable":            {machine(a, usb), "", nil, nil, fits},
		"two disks, one protected":            {machine(a, b), "", []string{"serial=B"}, nil, fits},
		"the only disk is protected":          {machine(a), "", []string{"serial=A"}, nil, noMatch},
		"the rule means no disk":              {machine(a, b), "serial=C", nil, nil, noMatch},
		"the rule means both":                 {machine(a, b), "size>=50GiB", nil, nil, noMatch},
		"a serial number nobody could read":   {machine(a, nameless), "serial=C", nil, nil, fits},
		"one fits, and one may":               {machine(a, nameless), "serial=A", nil, nil, fits},
		"a name that another system may give": {machine(a, b), "path=/dev/nvme0n1", nil, nil, fits},
		"a name, and a size that none has":    {machine(a, b), "path=/dev/sda,size>=1TiB", nil, nil, noMatch},
		"a disk that may be protected":        {machine(a, b), "", []string{"wwn=naa.1"}, nil, fits},
		"no disk at all":                      {machine(), "", nil, nil, noMatch},
		"disks that could not be read":        {disk.Machine{Arch: "amd64"}, "serial=C", nil, nil, fits},
		"nothing is known":                    {disk.Machine{}, "serial=C", nil, nil, fits},
		"the image is larger than the disk": {machine(a), "", nil,
			func(_ *disk.Machine, i *disk.Image) { i.RawSize = a.Size }, tooLarge},
		"room for the image and no more": {machine(a), "", nil, func(_ *disk.Machine, i *disk.Image) {
			i.RawSize = a.Size - disk.Reserve
		}, fits},
		"the disk is below the minimum": {machine(a, b), "serial=A", nil,
			func(_ *disk.Machine, i *disk.Image) { i.MinimumDisk = a.Size + 1 }, tooLarge},
		"one of those that may be meant is large enough": {machine(a, b), "path=/dev/x", nil,
			func(_ *disk.Machine, i *disk.Image) { i.RawSize = a.Size }, fits},
		"none of those that may be meant is large enough": {machine(a, b), "path=/dev/x", nil,
			func(_ *disk.Machine, i *disk.Image) { i.RawSize = b.Size }, tooLarge},
		"another architecture": {machine(a), "", nil, func(m *disk.Machine, _ *disk.Image) { m.Arch = "arm64" },
			unsupported},
		"an image for any": {machine(a), "", nil,
			func(m *disk.Machine, i *disk.Image) { m.Arch, i.Arch = "arm64", "" }, fits},
		"another firmware": {machine(a), "", nil, func(m *disk.Machine, _ *disk.Image) { m.Firmware = "bios" },
			unsupported},
		"a firmware not known": {machine(a), "", nil, func(m *disk.Machine, _ *disk.Image) { m.Firmware = "" }, fits},
		"an image that is a name": {machine(a), "", nil, func(_ *disk.Machine, i *disk.Image) { *i = disk.Image{Ref: "x"} },
			fits},
	} {
		im := image
		if c.change != nil {
			c.change(&c.m, &im)
		}
		got := disk.Fit(c.m, im, rule(t, c.rule), rules(t, c.protected...))
		reason := fits
		if got != nil {
			reason = got.Reason
		}
		if reason != c.want {
			t.Errorf("%s: %v (%v), want %v", name, reason, got, c.want)
		}
	}
}

// TestFitRefusesOnlyWhatTheInstallerRefuses: a misfit that is seen beforehand, on whatever part of the truth is known,
// is one that the installer sees too.
func TestFitRefusesOnlyWhatTheInstallerRefuses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		var truth, known []disk.Device
		for n := range r.IntN(4) {
			d := disk.Device{
				Path: "/dev/sd" + string(rune('a'+n)), Serial: pick("A", "B", ""), WWN: pick("naa.1", "naa.2", ""),
				Model: pick("X", "Y", ""),
				Size:  int64(1+r.IntN(3)) * disk.Reserve, Removable: r.IntN(8) == 0,
			}
			truth = append(truth, d)
			// The machine's own system sees no more than the installer, and calls it otherwise.
			if r.IntN(3) == 0 {
				d.Serial, d.WWN = "", ""
			}
			d.Path = "/dev/xd" + string(rune('z'-n))
			known = append(known, d)
		}
		var terms []string
		for range r.IntN(3) {
			terms = append(terms, pick("serial=A", "wwn=1", "model=X*", "path=/dev/sda", "size>=100MiB", "size<150MiB"))
		}
		var protected []disk.Rule
		for range r.IntN(2) {
			protected = rules(t, pick("serial=B", "wwn=naa.2", "path=/dev/sdb", "size>=150MiB"))
		}
		im := disk.Image{Ref: "os", Arch: "amd64", RawSize: int64(r.IntN(3)) * disk.Reserve}
		means := rule(t, strings.Join(terms, ","))
		misfit := disk.Fit(disk.Machine{Disks: known, DisksKnown: true}, im, means, protected)
		chosen, err := disk.Choose(truth, means, protected)
		if misfit != nil && err == nil && im.FitsOn(chosen) == nil {
			t.Fatalf("refused beforehand (%v), and the installer would take %s of %v", misfit, chosen, truth)
		}
	})
}

func TestMachineOfAnInventory(t *testing.T) {
	t.Parallel()
	m, err := disk.MachineOf([]byte(`{"cpu":{"architecture":"arm64"},"os":{"firmware_is":"uefi"},
		"disks":[{"name":"sda","serial":"A","wwn":"naa.1","model":"X","size_bytes":5,"removable":true}],"missing":["tpm: none"]}`))
	if err != nil || m.Arch != "arm64" || m.Firmware != "uefi" || !m.DisksKnown || len(m.Disks) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if d := m.Disks[0]; d.Serial != "A" || d.WWN != "naa.1" || d.Model != "X" || d.Size != 5 || !d.Removable {
		t.Errorf("disk %+v", d)
	}
	for name, doc := range map[string]string{
		"none": "", "disks unread": `{"disks":[],"missing":["disks: no sys/block"]}`, "no word of disks": `{}`,
		"simulated": `{"simulated":true,"cpu":{"architecture":"amd64"},"disks":[]}`,
	} {
		if m, err := disk.MachineOf([]byte(doc)); err != nil || m.DisksKnown || m.Arch != "" {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if _, err := disk.MachineOf([]byte(`{"disks":5}`)); err == nil {
		t.Error("a document that is none is read")
	}
}
