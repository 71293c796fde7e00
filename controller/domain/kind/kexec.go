package kind

// Kexec starts the installer's kernel from the running system.
const Kexec Kind = "kexec"

var kexec = Declaration{
	Kind:          Kexec,
	Action:        "installer",
	Harm:          Interrupts,
	SwitchesPower: true,
	Restarts:      true,
	Path:          PathKexec,
	Doing:         "the installer's kernel is being started",
	Entered:       "sent there by kexec",
}
