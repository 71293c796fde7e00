package disk

import (
	"fmt"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Reserve is how much larger than the raw image a disk must be, in bytes: it holds the state partition.
const Reserve = 64 << 20

// Image is what a system image asks of a machine. Zero fields ask for nothing.
type Image struct {
	Ref string
	// Arch is "amd64" or "arm64", as Go names it.
	Arch string
	// Firmware kinds that start it: "bios", "uefi". Empty: any.
	Firmware []string
	// RawSize and MinimumDisk are bytes.
	RawSize, MinimumDisk int64
}

// Misfit is why an image cannot be installed on a machine.
type Misfit struct {
	Reason  baremetalv1.Reason
	Message string
}

// Error gives the message.
func (m *Misfit) Error() string { return m.Message }

func misfit(reason baremetalv1.Reason, format string, args ...any) *Misfit {
	return &Misfit{reason, fmt.Sprintf(format, args...)}
}

// Needs is the size of the smallest disk that the image can be written to, in bytes; 0 is unknown.
func (i Image) Needs() int64 {
	if i.RawSize <= 0 {
		return i.MinimumDisk
	}
	return max(i.MinimumDisk, i.RawSize+Reserve)
}

// StartsOn returns why a machine of this architecture and firmware kind cannot start the image; nil where it can, or
// where either is unknown ("").
func (i Image) StartsOn(arch, firmware string) *Misfit {
	switch {
	case arch != "" && i.Arch != "" && arch != i.Arch:
		return misfit(baremetalv1.Reason_IMAGE_UNSUPPORTED, "image %q is for %s, and this machine is of %s", i.Ref, i.Arch,
			arch)
	case firmware != "" && len(i.Firmware) > 0 && !slices.Contains(i.Firmware, firmware):
		return misfit(baremetalv1.Reason_IMAGE_UNSUPPORTED,
			"image %q starts from %s firmware, and this machine was started by %s",
			i.Ref, strings.Join(i.Firmware, " or "), firmware)
	}
	return nil
}

// FitsOn returns why the image cannot be written to the disk; nil where it can.
func (i Image) FitsOn(d Device) *Misfit {
	if d.Size >= i.Needs() {
		return nil
	}
	return misfit(baremetalv1.Reason_IMAGE_TOO_LARGE, "%s is too small: image %q needs %s", d, i.Ref,
		FormatSize(i.Needs()))
}

// Machine is what is known of a machine that its installer does not run on yet. Empty fields are unknown.
type Machine struct {
	Arch, Firmware string
	// Disks are what the machine's own system sees. Their kernel names and links say nothing about those in the installer.
	Disks []Device
	// DisksKnown reports whether Disks were read at all.
	DisksKnown bool
}

// verdict of a disk that is only known from outside of the installer.
type verdict int

const (
	no verdict = iota
	perhaps
	yes
)

// Fit returns why the installation cannot succeed, whatever the installer finds besides what is known; nil where it
// may.
func Fit(m Machine, i Image, rule Rule, protected []Rule) *Misfit {
	if why := i.StartsOn(m.Arch, m.Firmware); why != nil || !m.DisksKnown {
		return why
	}
	var all []Candidate
	var possible []Device
	certain := 0
	for _, d := range m.Disks {
		v, why := expect(d, rule, protected)
		all = append(all, Candidate{d, why})
		if v == no {
			continue
		}
		possible = append(possible, d)
		if v == yes {
			certain++
		}
	}
	tooSmall := func(d Device) bool { return d.Size > 0 && i.FitsOn(d) != nil }
	switch {
	case len(possible) == 0 || certain > 1:
		return misfit(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, "%v", &NoUniqueMatch{Rule: rule, Candidates: all})
	case !slices.ContainsFunc(possible, func(d Device) bool { return !tooSmall(d) }):
		return i.FitsOn(possible[0])
	}
	return nil
}

// expect judges a disk beforehand, and gives the reason for anything but yes.
func expect(d Device, rule Rule, protected []Rule) (verdict, string) {
	limit := yes
	for _, p := range protected {
		switch v := p.expect(d); {
		case p.Empty():
		case v == yes:
			return no, "it is protected by " + p.String()
		case v == perhaps:
			limit = perhaps
		}
	}
	v := min(limit, rule.expect(d))
	switch {
	case d.Removable:
		return no, "it is removable"
	case v == no:
		return no, "the rule does not fit"
	case v == perhaps || d.Size <= 0:
		return perhaps, "it may fit"
	}
	return yes, ""
}

// expect is Match for a disk of which the installer may see more: a serial number that could not be read, another path.
func (r Rule) expect(d Device) verdict {
	v := yes
	for _, t := range r.terms {
		switch {
		case t.unknownOf(d):
			v = min(v, perhaps)
		case !t.holds(d):
			return no
		}
	}
	return v
}

func (t term) unknownOf(d Device) bool {
	return map[string]bool{
		"path": true, "serial": d.Serial == "", "wwn": d.WWN == "", "model": d.Model == "", "size": d.Size <= 0,
	}[t.key]
}
