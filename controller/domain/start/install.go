package start

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/failure"
)

func installerIsOurs(f *Facts) error {
	s := plan.ByInstaller(f.steps())
	if s == nil || f.Machine.Provider != workflow.ProviderMAAS {
		return nil
	}
	return failure.Invalid("INVALID_FIELD",
		"step %s is done by our own installer, and machine %s is installed by MAAS", s.Step.GetName(), f.Machine.MachineID).
		WithField("plan_id", "for a machine of provider maas: plan "+plan.RepaveMAAS+
			", or one with steps of kind provider_action; to erase it, a decommission").
		WithMeta("machine_id", f.Machine.MachineID)
}

func repaves(s plan.Filled) bool { return kind.Of(s.Kind).WritesSystem }

// imageAsks are the images that are written, and whether there is any where one of them is missing.
func imageAsks(f *Facts) (ask []Fact) {
	for _, s := range f.steps() {
		if repaves(s) {
			ask = append(ask, Fact{ImageFact, s.Step.GetRepave().GetImage()})
		}
	}
	for _, image := range ask {
		if _, ok := f.Images[image.Ref]; !ok && f.learned[image] && f.takesAnyName() {
			return append(ask, Fact{Kind: AnyImageFact})
		}
	}
	return ask
}

// takesAnyName reports whether the machine has no real disk as far as is known: a simulated machine has none. Where the
// catalogue has no operating system at all, such a machine takes any name, for demonstrations; the answer names that.
func (f *Facts) takesAnyName() bool {
	m := f.Machine
	return !m.ours() || m.Simulated || m.Spec.GetBmcEndpoint() == "" && m.AgentID == ""
}

// imagesExist refuses an image that the catalogue does not have, and a file of it that is no operating system.
func imagesExist(f *Facts) error {
	for _, s := range f.steps() {
		if !repaves(s) {
			continue
		}
		ref := s.Step.GetRepave().GetImage()
		image, ok := f.Images[ref]
		switch {
		case ok && image.Kind != OSImage:
			return failure.NotFound("IMAGE_NOT_FOUND", "%q is not an image that can be installed: it is a file of an "+
				"installer (%s), and no operating system; see `ingot image list`", ref, image.Kind).
				WithField("image_ref", "not in the catalogue")
		case !ok && (f.AnyImage || !f.takesAnyName()):
			return failure.NotFound("IMAGE_NOT_FOUND", "there is no image %q in the catalogue; see `ingot image list`", ref).
				WithField("image_ref", "not in the catalogue")
		}
	}
	return nil
}

// anyNames are the sentences about images that do not exist, and that the machine takes.
func (f *Facts) anyNames() (out []string) {
	for _, s := range f.steps() {
		if !repaves(s) {
			continue
		}
		if ref := s.Step.GetRepave().GetImage(); f.Images[ref].Kind == "" {
			out = append(out, "step "+s.Step.GetName()+": the catalogue has no image at all, and a simulated "+
				"machine takes any name: no image "+ref+" exists")
		}
	}
	return out
}

// getsSecrets reports whether the step is done by an installer that is given more than an inventory to take.
func getsSecrets(s plan.Filled) bool { return kind.Of(s.Kind).NeedsInstaller }

func identityAsks(f *Facts) []Fact {
	m := f.Machine
	if !m.ours() || m.Simulated || m.HasTPM || !slices.ContainsFunc(f.steps(), getsSecrets) {
		return nil
	}
	return []Fact{{IdentityFact, m.MachineID}}
}

// identifiable refuses work that needs an installer on a machine that can't reach the level that is required of it. It
// is judged by what is known before the installer runs: the TPM that is recorded, and the path into the installer.
func identifiable(f *Facts) error {
	if len(identityAsks(f)) == 0 {
		return nil
	}
	media := !slices.ContainsFunc(f.steps(), func(s plan.Filled) bool {
		return getsSecrets(s) && plan.InstallerPath(s.Step) != operation.PathMedia
	})
	v := identity.Decide(identity.Facts{Required: f.Identity, Installs: true, Shown: &identity.Key{}, Media: media})
	if v.Refused == nil {
		return nil
	}
	return failure.Precondition(v.Refused.Reason, "%s", v.Refused.Message).WithMeta("machine_id", f.Machine.MachineID)
}

// installerStep is the first step that runs in the installer on a machine that our installer can reach; nil if there is
// none.
func (f *Facts) installerStep() *plan.Filled {
	steps := f.steps()
	i := slices.IndexFunc(steps, getsSecrets)
	if i < 0 || !OnMetal(f.Machine, f.Agents) || f.Machine.Spec.GetBmcEndpoint() == "" && f.Machine.AgentID == "" {
		return nil
	}
	return &steps[i]
}

// noPath returns why nothing leads into the installer; nil where a path does.
func (f *Facts) noPath(s *plan.Filled) *fleet.Refusal {
	world := operation.World{Provider: fleet.AgentProvider, Boot: f.Boot,
		Candidates: Candidates(f.Machine, f.Agents, nil, fleet.AgentProvider)}
	return decider.NoBootPath(world, plan.InstallerPath(s.Step))
}

func installAsks(f *Facts) []Fact {
	s := f.installerStep()
	if s == nil || f.noPath(s) != nil {
		return nil
	}
	ask := []Fact{{InventoryFact, f.Machine.MachineID}, {Kind: InstallersFact}}
	if plan.InstallerPath(s.Step) == operation.PathMedia && !overIPMI(f.Machine.Spec) {
		ask = append(ask, Fact{SegmentsFact, f.Machine.Site})
	}
	return ask
}

func overIPMI(spec *baremetalv1.MachineSpec) bool {
	return strings.HasPrefix(spec.GetBmcEndpoint(), "ipmi://")
}

// installable refuses work of the installer that cannot succeed, before the machine leaves its system: no path leads
// into the installer, or the inventory rules the image or the disk out.
func installable(f *Facts) error {
	s := f.installerStep()
	if s == nil {
		return nil
	}
	refusal := f.noPath(s)
	if refusal == nil && plan.InstallerPath(s.Step) == operation.PathMedia {
		refusal = f.noMedia()
	}
	if refusal == nil {
		refusal = f.installerFits()
	}
	if refusal == nil {
		return nil
	}
	e := refused(refusal, f.Machine).WithMeta("step", s.Step.GetName())
	if n := slices.IndexFunc(f.steps(), repaves); n >= 0 {
		e = e.WithMeta("image_ref", f.steps()[n].Step.GetRepave().GetImage())
	}
	return e
}

// noMedia returns why the machine cannot boot from virtual media; nil where it may.
func (f *Facts) noMedia() *fleet.Refusal {
	if overIPMI(f.Machine.Spec) {
		return &fleet.Refusal{
			Reason: "MEDIA_UNSUPPORTED",
			Message: "the machine's BMC is spoken to over IPMI, which has no " +
				"virtual media; name its Redfish service with `ingot machine update MACHINE --bmc-endpoint`, or take another way " +
				"with `ingot reimage MACHINE --path bmc`",
		}
	}
	gives := func(mode string) bool { return mode != "static" }
	if f.Machine.Spec.GetInstallAddress() != "" || slices.ContainsFunc(f.SegmentModes, gives) {
		return nil
	}
	return &fleet.Refusal{
		Reason: "NO_INSTALL_ADDRESS",
		Message: "no server assigns addresses on the machine's segment, and none " +
			"is known for its installer; name one with `ingot machine update MACHINE --install-address ADDRESS/BITS`",
	}
}

// installerFits compares the machine's inventory with the images that are written, and with the installers that the
// catalogue has.
func (f *Facts) installerFits() *fleet.Refusal {
	for _, s := range f.steps() {
		var refusal *fleet.Refusal
		switch {
		case repaves(s):
			i := Installation{Spec: f.Machine.Spec, Agents: f.Agents, Inventory: f.Inventory, Installers: f.Installers}
			if image, ok := f.Images[s.Step.GetRepave().GetImage()]; ok {
				i.Image = &image
			}
			refusal = i.Unfit(s.Step.GetRepave())
		case kind.Of(s.Kind).NeedsInstaller:
			refusal = noInstallerFor(f.Inventory.Machine.Arch, f.Installers)
		}
		if refusal != nil {
			return refusal
		}
	}
	return nil
}

// noInstallerFor refuses a machine of an architecture that the catalogue has no installer for; "" is any.
func noInstallerFor(arch string, installers []string) *fleet.Refusal {
	if arch == "" || slices.Contains(installers, arch) {
		return nil
	}
	return &fleet.Refusal{Reason: "INSTALLER_MISSING", Message: "the image catalogue has no installer for " + arch +
		", which the machine is of; add one with `ingot image add --kind installer-kernel --arch " + arch + "`"}
}

// Installation is an image that is to be written on a machine, with the facts that rule it out.
type Installation struct {
	Spec   *baremetalv1.MachineSpec
	Agents []fleet.Candidate
	// Image is nil if the catalogue does not have it.
	Image     *Image
	Inventory Inventory
	// Installers are the architectures that the catalogue has an installer for.
	Installers []string
}

// Unfit returns why the image cannot be installed on the machine, by the inventory of the system that runs on it now;
// nil where that may be possible, or nothing is known.
func (i Installation) Unfit(r *baremetalv1.RepaveImage) *fleet.Refusal {
	if i.Image == nil {
		return nil
	}
	known := i.Inventory.Machine
	// The image is of the machine's architecture, or is refused; either way its own has no use without an installer.
	if missing := noInstallerFor(cmp.Or(known.Arch, i.Image.Arch), i.Installers); missing != nil {
		return missing
	}
	live := slices.ContainsFunc(i.Agents, func(c fleet.Candidate) bool { return c.Role == "host" && c.Live })
	if i.Inventory.ReportedAt.IsZero() || !live {
		return nil // what was reported once may be out of date
	}
	why := disk.FitRules(known, i.Image.Image, cmp.Or(r.GetDisk(), i.Spec.GetInstallDisk()),
		cmp.Or(r.GetMirror(), i.Spec.GetInstallMirror()), i.Spec.GetProtectedDisks())
	if why == nil {
		return nil
	}
	return &fleet.Refusal{Reason: why.Reason.String(), Message: fmt.Sprintf("%s, by its inventory of %s; %s", why.Message,
		i.Inventory.ReportedAt.UTC().Format(time.RFC3339), nextStep[why.Reason])}
}

// nextStep is what helps against each misfit.
var nextStep = map[baremetalv1.Reason]string{
	baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH: "see `ingot machine inventory`, and name one disk with `ingot machine " +
		"update --install-disk`",
	baremetalv1.Reason_IMAGE_TOO_LARGE: "name a larger disk with `ingot machine update --install-disk`, or take a " +
		"smaller image",
	baremetalv1.Reason_IMAGE_UNSUPPORTED: "take an image made for it; see `ingot image list`",
}

// takesSeed refuses a seed for work that writes no image by the installer, which alone puts it on a disk.
func takesSeed(f *Facts) error {
	if f.Request.Params["seed"] == "" || slices.ContainsFunc(f.steps(), repaves) {
		return nil
	}
	return failure.Precondition("CAPABILITY_MISSING",
		"nothing in this plan gives a system ssh keys, user-data or a network configuration: only an image that the "+
			"installer writes is given them").WithField("seed", "the plan has no step of kind repave")
}

// takesAgentless refuses an installation without an agent that could not be carried out or proven. On a machine that
// was installed so, it refuses the steps that need an agent.
func takesAgentless(f *Facts) error {
	m, wanted := f.Machine, f.Request.Inputs.Agentless
	agentless, written := m.Agentless, false
	for _, s := range f.steps() {
		of := kind.Of(s.Kind)
		switch {
		case of.WritesSystem:
			agentless, written = wanted, true
		case agentless && !written && of.ProvenByBoot && m.Spec.GetBmcEndpoint() == "":
			return failure.Precondition("NO_BMC", "the machine's system has no agent, and is rebooted through a BMC; name "+
				"it with `ingot machine update %s --bmc-endpoint ADDRESS`", m.MachineID).
				WithMeta("machine_id", m.MachineID)
		case agentless && of.AsksHost:
			return failure.Precondition("MACHINE_AGENTLESS",
				"step %s needs an agent on the machine, and its system has none; reimage it with `ingot reimage %s` without "+
					"--agentless first", s.Step.GetName(), m.MachineID).
				WithMeta("machine_id", m.MachineID).WithMeta("step", s.Step.GetName())
		}
	}
	if !wanted || slices.ContainsFunc(f.steps(), repaves) && OnMetal(m, nil) && m.Site != "" {
		return nil
	}
	return failure.Precondition("CAPABILITY_MISSING",
		"only our own installer writes a system without an agent, on a machine of a site that it is netbooted from: "+
			"install it without --agentless").WithField("agentless", "no step of the plan is done by the installer").
		WithMeta("machine_id", m.MachineID)
}
