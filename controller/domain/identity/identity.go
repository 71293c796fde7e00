// Package identity decides what a netbooted system has to prove before it is certified as the installer of a machine.
// The rules are pure: data in, verdict out.
package identity

import (
	"bytes"
	"slices"
)

// Level is how a system proves which machine it runs on. Levels are ordered; see Higher.
type Level string

// The levels. LevelMedia is a one-time secret in an image that the BMC has attached.
const (
	LevelNetwork Level = "network"
	LevelMedia   Level = "media"
	LevelTPM     Level = "tpm"
)

var order = []Level{"", LevelNetwork, LevelMedia, LevelTPM}

// Higher returns the higher of two levels. The empty level is the lowest.
func Higher(a, b Level) Level {
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}

// Trust is why an endorsement key is believed to be in a TPM.
type Trust string

// The kinds of trust. TrustNone goes with levels below LevelTPM.
const (
	TrustNone     Trust = ""
	TrustFirstUse Trust = "first-use"
	TrustVendor   Trust = "vendor"
)

// Key is the endorsement key that a system shows.
type Key struct {
	// Digest is the SHA-256 of its public area.
	Digest []byte
	// Vendor reports that a certificate by a configured root is of this key.
	Vendor bool
}

// Facts are what a verdict is made of.
type Facts struct {
	// Required is the higher of the levels that the machine's site and group ask for.
	Required Level
	// Recorded is the digest of the endorsement key that the machine is known by, nil for none, with its trust.
	Recorded []byte
	Trust    Trust
	// RecordedNow reports that the key was recorded under the assignment that this system asks for.
	RecordedNow bool
	// Installs reports that the system will be given secrets: it installs. Else it only takes inventory.
	Installs bool
	// Shown is the key that the system shows, nil for none. Taken reports that another machine is known by it.
	Shown *Key
	Taken bool
	// OtherHardware is what differs on the hardware that the system runs on from the machine's; "" for nothing known.
	OtherHardware string
	// MediaAsked is set when the machine boots from an image that its BMC attaches. Media is set when the system has
	// proven that it was started from that image.
	MediaAsked, Media bool
}

// Refusal is why a system is not certified. Reason is one of the API's.
type Refusal struct{ Reason, Message string }

// Verdict is what the system must prove, or why it gets nothing.
type Verdict struct {
	// Level is what the system is certified at. LevelTPM needs a proof that it holds the shown key.
	Level Level
	Trust Trust
	// Refused is nil if the system may be certified.
	Refused *Refusal
	// Contested reports that two systems claim a machine whose key was believed at its first use, just now: which of them
	// is the machine can't be known.
	Contested bool
}

// Decide returns the verdict on one system.
func Decide(f Facts) Verdict {
	refusal := f.refusal()
	switch {
	case f.MediaAsked && !f.Media:
		// A system without the secret does not contest the machine, which has it.
		return Verdict{Refused: &Refusal{"MEDIA_PROOF_MISSING", "the machine boots from virtual media, and the system that " +
			"asks to be its installer does not prove that it was started from there; find the system on the segment"}}
	case refusal != nil && f.RecordedNow && f.Trust == TrustFirstUse:
		return Verdict{Refused: refusal, Contested: true}
	case refusal != nil:
		return Verdict{Refused: refusal}
	case f.Shown == nil && f.Media:
		return Verdict{Level: LevelMedia}
	case f.Shown == nil:
		return Verdict{Level: LevelNetwork}
	case f.Shown.Vendor:
		return Verdict{Level: LevelTPM, Trust: TrustVendor}
	case f.Recorded != nil:
		return Verdict{Level: LevelTPM, Trust: f.Trust}
	}
	return Verdict{Level: LevelTPM, Trust: TrustFirstUse}
}

func (f Facts) refusal() *Refusal {
	tpm := f.Required == LevelTPM
	switch {
	case f.Recorded != nil && f.Shown == nil:
		return &Refusal{"TPM_REQUIRED",
			"the machine is known by its TPM, and the system that asks to be its installer shows none" + afterSwap}
	case f.Recorded != nil && !bytes.Equal(f.Recorded, f.Shown.Digest):
		return &Refusal{"TPM_MISMATCH",
			"the system that asks to be the machine's installer shows another TPM than the machine's" + afterSwap}
	case f.Shown != nil && f.Taken:
		return &Refusal{"TPM_KEY_TAKEN",
			"the system that asks to be the machine's installer shows the TPM of another machine; " +
				"if the mainboard has moved here: ingot machine forget-tpm, of the machine that it came from"}
	case f.Installs && f.OtherHardware != "":
		return &Refusal{"HARDWARE_MISMATCH",
			"the system that asks to be the machine's installer runs on other hardware: " + f.OtherHardware +
				"; find the system on the segment, or, after a change of the mainboard, take inventory first: ingot netboot"}
	case tpm && f.Shown == nil:
		return &Refusal{"IDENTITY_LEVEL_TOO_LOW",
			"the machine's site or group requires the identity level tpm, and the system shows no TPM; " +
				"switch the TPM on in its firmware, or lower the level: ingot identity require"}
	case tpm && f.Installs && f.Recorded == nil:
		return &Refusal{"IDENTITY_LEVEL_TOO_LOW",
			"the machine's site or group requires the identity level tpm, and no TPM is recorded for it; " +
				"record it first: ingot netboot"}
	case f.Required == LevelMedia && !f.Media && f.Recorded == nil:
		return &Refusal{"IDENTITY_LEVEL_TOO_LOW",
			"the machine's site or group requires the identity level media, and it does not boot from virtual media; " +
				"take that way: ingot reimage --path media, or ingot machine update --install-path media"}
	}
	return nil
}

const afterSwap = "; find the system on the segment, or, after a change of the mainboard: ingot machine forget-tpm"
