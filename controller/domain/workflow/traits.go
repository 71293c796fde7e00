package workflow

// ProviderMAAS is the provider of machines that a MAAS region installs.
const ProviderMAAS = "maas"

// The ways of an onboarding.
const (
	// PathInstall writes an image and waits for the system that it makes.
	PathInstall = "install"
	// PathAdopt takes the system that is there, once its agent has enrolled.
	PathAdopt = "adopt"
)

// Traits are what of a machine decides which stages its workflow has.
type Traits struct {
	Provider string
	// BMC is set when the machine can be switched from outside.
	BMC bool
	// GPU is set when the machine's inventory shows a GPU.
	GPU bool
	// Path of an onboarding: PathInstall or PathAdopt.
	Path string
}

func (t Traits) maas() bool { return t.Provider == ProviderMAAS }
