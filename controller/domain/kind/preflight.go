package kind

// Preflight proves from the installer that a repave can begin. It destroys nothing.
const Preflight Kind = "preflight"

var preflight = Declaration{
	Kind:      Preflight,
	Action:    "preflight",
	Harm:      Harmless,
	Ungranted: true,
	Prepares:  true,
	Doing:     "the installer proves that it can write, and changes nothing",
}
