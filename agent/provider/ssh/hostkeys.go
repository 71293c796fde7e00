package ssh

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/ingot-metal/ingot/internal/failure"
)

// pins are the keys that a server may show.
type pins struct {
	keys         []ssh.PublicKey
	fingerprints []string
}

// families are the host key algorithms that are asked for, by the type of the key. SHA-1 signatures are not among them.
var families = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// parsePins reads fingerprints ("SHA256:…") and lines of authorized_keys(5).
func parsePins(list []string) (pins, error) {
	var p pins
	for _, text := range list {
		if strings.HasPrefix(text, "SHA256:") {
			p.fingerprints = append(p.fingerprints, strings.TrimRight(text, "="))
			continue
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil {
			return pins{},
				failure.Invalid("INVALID_FIELD",
					"a host key of the machine is neither SHA256:… nor a line of authorized_keys").Wrap(err)
		}
		p.keys = append(p.keys, key)
	}
	if len(p.keys)+len(p.fingerprints) == 0 {
		return pins{}, failure.Precondition("SSH_HOST_KEY_UNKNOWN",
			"no SSH host key of the machine is known; read its fingerprint at the machine "+
				"(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and give it with ingot machine update --ssh-host-key")
	}
	return p, nil
}

// algorithms returns what to ask the server for, one list for each try: a server shows the one key that is asked for
// first, and a fingerprint does not tell of which type its key is.
func (p pins) algorithms() [][]string {
	if len(p.fingerprints) > 0 {
		return families
	}
	var out [][]string
	for _, f := range families {
		if slices.ContainsFunc(p.keys, func(k ssh.PublicKey) bool { return ofFamily(f, k.Type()) }) {
			out = append(out, f)
		}
	}
	return out
}

func ofFamily(family []string, keyType string) bool {
	return slices.Contains(family, keyType) || keyType == ssh.KeyAlgoRSA && slices.Contains(family, ssh.KeyAlgoRSASHA512)
}

func (p pins) has(key ssh.PublicKey) bool {
	return slices.Contains(p.fingerprints, ssh.FingerprintSHA256(key)) ||
		slices.ContainsFunc(p.keys, func(k ssh.PublicKey) bool { return slices.Equal(k.Marshal(), key.Marshal()) })
}

// errMismatch: the server shows a key that is not pinned.
var errMismatch = errors.New("host key mismatch")

// check is a ssh.HostKeyCallback that remembers what it saw.
func (p pins) check(seen *ssh.PublicKey) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, key ssh.PublicKey) error {
		*seen = key
		if !p.has(key) {
			return fmt.Errorf("%w: it shows %s", errMismatch, ssh.FingerprintSHA256(key))
		}
		return nil
	}
}
