package httpboot

import (
	"crypto/sha256"
	"slices"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Installer is what the machines of one architecture boot, as digests of blobs.
type Installer struct {
	Arch                string // amd64 or arm64
	Kernel, Initrd, UKI string
	Cmdline             string
}

// View is what a segment's boot server answers from. It must not be changed after it was set.
type View struct {
	Assignments []segment.Assignment
	Installers  []Installer
	// Blobs are those that any machine may fetch now.
	Blobs []string
	// Controllers are the host:port that CONNECT may reach.
	Controllers []string
	// PhoneHomes are the systems that are to phone home.
	PhoneHomes []PhoneHome
}

type view struct {
	View
	byMAC map[segment.MAC]segment.Assignment
	// byToken is keyed by the token's hash: the time of a look-up discloses nothing about a token that is nearly right.
	byToken     map[[sha256.Size]byte][]segment.Assignment
	blobs       map[string]bool
	controllers map[string]bool
	// phoneHomes are keyed by the hash of their secret, for the same reason as byToken.
	phoneHomes map[[sha256.Size]byte]PhoneHome
}

func newView(v View) *view {
	out := &view{
		View: v, byMAC: map[segment.MAC]segment.Assignment{}, byToken: map[[sha256.Size]byte][]segment.Assignment{},
		blobs: map[string]bool{}, controllers: map[string]bool{}, phoneHomes: map[[sha256.Size]byte]PhoneHome{},
	}
	for _, p := range v.PhoneHomes {
		out.phoneHomes[p.SecretSHA256] = p
	}
	for _, a := range v.Assignments {
		out.byMAC[a.MAC] = a
		if a.Boots() && a.Token != "" {
			key := sha256.Sum256([]byte(a.Token))
			out.byToken[key] = append(out.byToken[key], a)
		}
	}
	for _, b := range v.Blobs {
		out.blobs[b] = true
	}
	for _, c := range v.Controllers {
		out.controllers[c] = true
	}
	return out
}

func (v *view) token(token string) []segment.Assignment {
	return v.byToken[sha256.Sum256([]byte(token))]
}

// installer is that of the architecture, as iPXE, DHCP or Go name it. The boot ROM of a BIOS is a 32-bit program, and
// so is the iPXE for it; the machine is not.
func (v *view) installer(arch string) (Installer, bool) {
	want := "amd64"
	switch arch {
	case "arm64", "aarch64", "uefi-arm64":
		want = "arm64"
	}
	i := slices.IndexFunc(v.Installers, func(i Installer) bool { return i.Arch == want })
	if i < 0 && arch == "" && len(v.Installers) == 1 {
		i = 0
	}
	if i < 0 {
		return Installer{}, false
	}
	return v.Installers[i], true
}
