package operation

import "github.com/ingot-metal/ingot/controller/domain/kind"

// System is what a command is meant to bring up on its machine.
type System string

// The systems.
const (
	// SystemInstaller writes or erases the machine's disks from its memory.
	SystemInstaller System = "installer"
	// SystemRescue was asked to be booted from the network once.
	SystemRescue System = "rescue"
	// SystemWritten is on the disk that this operation has written.
	SystemWritten System = "written"
	// SystemSame is the machine's own system, as before the command.
	SystemSame System = "same"
	// SystemElsewhere is served by a boot server that is not ours: nothing names it beforehand.
	SystemElsewhere System = "elsewhere"
	// SystemReplaced is on the machine after its hardware was replaced.
	SystemReplaced System = "replaced"
)

// What a system is recognized by.
const (
	ByInstallerSession = "installer_session"
	ByOperationToken   = "operation_token"
	ByAgentIdentity    = "agent_identity"
	ByProvider         = "provider"
	ByPhoneHome        = "phone_home"
	ByProbe            = "probe"
)

// BootRule is the proof that a system has come up.
type BootRule struct {
	Boots System
	// Kinds of the commands that bring it up; none for a wait.
	Kinds []kind.Kind
	// By is what the system is recognized by, or one of what.
	By []string
	// Evidence is that proof in words, Wrong the sign that another system has come up.
	Evidence, Wrong string
}

// BootTable is the evidence of every boot. situation.Situation.Arrived follows it.
var BootTable = []BootRule{
	{
		SystemInstaller, []kind.Kind{kind.Reboot, kind.Kexec, kind.Power}, []string{ByInstallerSession},
		"the session of an installer certified for this operation", "the machine's own agent, in another boot",
	},
	{
		SystemRescue, []kind.Kind{kind.Reboot}, []string{ByInstallerSession},
		"the session of the system certified under this operation's assignment", "the machine's own agent, in another boot",
	},
	{
		SystemWritten, []kind.Kind{kind.Reboot, kind.Power}, []string{ByOperationToken, ByPhoneHome},
		"the session of an agent that enrolled with the token made for this operation, and names the digest that was read " +
			"back; for a system without an agent, the one-time secret of the installation and its instance id, posted by " +
			"cloud-init to the site's agent",
		"an agent with that token that names another digest",
	},
	{
		SystemSame, []kind.Kind{kind.Reboot, kind.Power}, []string{ByAgentIdentity, ByProvider, ByProbe},
		"the session of the same agent in another boot, of an image with the same digest; for a machine without an agent, " +
			"the boot ids that its provider read, or, where it was installed so, its power read back off and then on and the " +
			"answer of its system on the network after it",
		"a session of another agent of the machine, or an image with another digest",
	},
	{
		SystemElsewhere, []kind.Kind{kind.Reboot}, []string{ByAgentIdentity, ByProvider},
		"the session of an agent of the machine in another boot, which the evidence names", "",
	},
	{
		SystemReplaced, nil, []string{ByAgentIdentity},
		"the session of the same agent in another boot, or of one that enrolled since", "",
	},
}
