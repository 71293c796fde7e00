package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/agent/tpmdevice"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// Identity reads the boot id, the machine-id and what the hardware fingerprint is made of.
func (l *Linux) Identity(ctx context.Context) (Identity, error) {
	if err := ctx.Err(); err != nil {
		return Identity{}, err
	}
	boot := l.ReadText("proc/sys/kernel/random/boot_id")
	if boot == "" {
		return Identity{}, fmt.Errorf("read boot id from %s: nothing there", l.Path("proc/sys/kernel/random/boot_id"))
	}
	return Identity{
		BootID: boot, MachineID: l.ReadText("etc/machine-id"), Hostname: l.ReadText("proc/sys/kernel/hostname"),
		HardwareFingerprint: l.hardware().Fingerprint(),
	}, nil
}

// hardware reads the machine's identifying values, with the fingerprint that older agents have shown: a controller that
// knows the machine by that one compares it once more.
func (l *Linux) hardware() hwid.Facts {
	f := inventory.Identity(l.Root)
	switch key, err := l.tpm.read(l.Path("dev"), l.now()); {
	case err == nil:
		f.TPM = key
	case !errors.Is(err, tpmdevice.ErrNone):
		f.Unread = append(f.Unread, "the TPM's key")
	}
	f.V1 = fingerprintV1(inventory.ReadFingerprinted(l.Root), inventory.PermanentMACs(l.Root))
	return f
}

// fingerprintV1 hashes what older agents counted. macs are sorted. The serials can be read by root only. A machine that
// shows nothing at all has none (""), rather than one that it shares with others.
func fingerprintV1(s inventory.System, macs []string) string {
	if s.UUID+s.BoardSerial+s.ChassisSerial == "" && len(macs) == 0 {
		return ""
	}
	h := sha256.New()
	// Every part ends with a newline, which none of them holds: no two lists of parts hash the same text.
	fmt.Fprintf(h, "ingot hardware 1\nuuid %s\nboard %s\nchassis %s\n", strings.ToLower(s.UUID), s.BoardSerial,
		s.ChassisSerial)
	for _, m := range macs {
		fmt.Fprintf(h, "mac %s\n", m)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// tpmRest is the time for which a TPM is left alone after it has shown no key. A wait for another boot id asks for the
// identity several times a second, and a TPM takes long to answer.
const tpmRest = time.Minute

// tpmKey remembers the key of the machine's TPM, which stays as long as this process. The zero value knows none.
type tpmKey struct {
	mu     sync.Mutex
	digest string
	err    error
	again  time.Time
}

func (k *tpmKey) read(dev string, now time.Time) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.digest != "" || k.err != nil && now.Before(k.again) {
		return k.digest, k.err
	}
	k.digest, k.err = tpmdevice.KeptKey(dev)
	k.again = now.Add(tpmRest)
	return k.digest, k.err
}
