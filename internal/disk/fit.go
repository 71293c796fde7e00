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

// Error returns the message.
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

// mirrorReserve is how much of each disk of a mirror is not the mirror's, at least, and what its size is a multiple of.
const mirrorReserve = 1 << 20

// MirrorSize is that of a mirror of two disks of these sizes, in bytes.
func MirrorSize(a, b int64) int64 {
	return max(0, min(a, b)-mirrorReserve) / mirrorReserve * mirrorReserve
}

// FitsOnPair returns why the image cannot be written to a mirror of both; nil where it can.
func (i Image) FitsOnPair(p Pair) *Misfit {
	switch smaller := MirrorSize(p.First.Size, p.Second.Size); {
	case p.First.Sector != p.Second.Sector:
		return misfit(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH,
			"%s and %s make no mirror: one has sectors of %d bytes, the other of %d", p.First, p.Second, p.First.Sector,
			p.Second.Sector)
	case smaller < i.Needs():
		return misfit(baremetalv1.Reason_IMAGE_TOO_LARGE, "a mirror of %s and %s is too small: image %q needs %s", p.First,
			p.Second, i.Ref, FormatSize(i.Needs()))
	}
	return nil
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

// Machine has the known facts of a machine that its installer does not run on yet. Empty fields are unknown.
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

// Fit returns why the installation cannot succeed, whatever the installer finds besides the known facts; nil where it
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

// FitRules is Fit, or FitPair where there is a rule for a mirror, for rules as they are written. Rules that cannot be
// read are no misfit: they are checked where they are set, and the installer has the last word.
func FitRules(m Machine, i Image, rule, mirror string, protected []string) *Misfit {
	first, bad := ParseRule(rule)
	second, wrong := ParseRule(mirror)
	keep, worse := ParseRules(protected)
	switch {
	case bad != nil || wrong != nil || worse != nil:
		return nil
	case second.Empty():
		return Fit(m, i, first, keep)
	}
	return FitPair(m, i, first, second, keep)
}

// FitPair is Fit for a mirror of two disks.
func FitPair(m Machine, i Image, rule, mirror Rule, protected []Rule) *Misfit {
	if why := i.StartsOn(m.Arch, m.Firmware); why != nil || !m.DisksKnown {
		return why
	}
	var all []Candidate
	var possible []Pair
	certain := 0
	for n, a := range m.Disks {
		asFirst, why := expect(a, rule, protected)
		asSecond, other := expect(a, mirror, protected)
		if asFirst == no && asSecond != no {
			why = other
		}
		all = append(all, Candidate{a, why})
		for _, b := range m.Disks[:n] {
			v := max(min(asSecond, verdictOf(b, rule, protected)), min(asFirst, verdictOf(b, mirror, protected)))
			if v == no || a.mayBe(b) {
				continue
			}
			if possible = append(possible, Pair{b, a}); v == yes {
				certain++
			}
		}
	}
	tooSmall := func(p Pair) bool {
		return p.First.Size > 0 && p.Second.Size > 0 && MirrorSize(p.First.Size, p.Second.Size) < i.Needs()
	}
	switch {
	case len(possible) == 0 || certain > 1:
		return misfit(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, "%v",
			&NoUniqueMatch{Rule: rule, Mirror: &mirror, Candidates: all})
	case !slices.ContainsFunc(possible, func(p Pair) bool { return !tooSmall(p) }):
		return i.FitsOnPair(possible[0])
	}
	return nil
}

// expect judges a disk beforehand, and returns the reason for anything but yes.
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

// verdictOf is expect without its reason.
func verdictOf(d Device, rule Rule, protected []Rule) verdict {
	v, _ := expect(d, rule, protected)
	return v
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
