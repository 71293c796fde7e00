package secret

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// BMC is what it takes to log in to a management controller.
type BMC struct {
	Username string `json:"u"`
	Password string `json:"p"`
}

// String and GoString keep it out of logs.
func (BMC) String() string { return "[sealed]" }

// GoString keeps it out of logs too.
func (BMC) GoString() string { return "[sealed]" }

func bmcName(ref string) string { return "bmc\x00" + ref }

// SealBMC seals credentials under their name.
func (b *Box) SealBMC(ref string, c BMC) []byte {
	raw, _ := json.Marshal(c) // two strings always serialize
	return b.Seal(bmcName(ref), raw)
}

// OpenBMC opens credentials that were sealed under this name; ErrSealed where that is not possible.
func (b *Box) OpenBMC(ref string, sealed []byte) (BMC, error) {
	return openBMC(b, bmcName(ref), sealed)
}

func openBMC(b *Box, name string, sealed []byte) (BMC, error) {
	raw, err := b.Open(name, sealed)
	if err != nil {
		return BMC{}, err
	}
	var c BMC
	if err := json.Unmarshal(raw, &c); err != nil {
		return BMC{}, fmt.Errorf("parse credentials: %w", ErrSealed)
	}
	return c, nil
}

func ownBMCName(machineID, ref string) string { return "bmc of machine\x00" + machineID + "\x00" + ref }

// SealBMCOf seals what a machine's own BMC takes in place of the credentials of that name.
func (b *Box) SealBMCOf(machineID, ref string, c BMC) []byte {
	raw, _ := json.Marshal(c) // two strings always serialize
	return b.Seal(ownBMCName(machineID, ref), raw)
}

// OpenBMCOf opens what SealBMCOf has sealed for the same machine and name; ErrSealed where that is not possible.
func (b *Box) OpenBMCOf(machineID, ref string, sealed []byte) (BMC, error) {
	return openBMC(b, ownBMCName(machineID, ref), sealed)
}

// passwordLength is what every BMC takes: IPMI 1.5 has 16 bytes, IPMI 2.0 20 (22.30).
const passwordLength = 16

// passwordClasses are what a password has at least one character of each of: policies of BMCs ask for them. No
// character means something to a shell, in JSON, XML or a URL's user, and none looks like another.
var passwordClasses = []string{"ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.+="}

// NewBMCPassword makes a random password of 16 characters: 92 bits.
func NewBMCPassword() string {
	all := strings.Join(passwordClasses, "")
	for {
		out := make([]byte, passwordLength)
		for i := range out {
			n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(all)))) // crypto/rand never fails since Go 1.24
			out[i] = all[n.Int64()]
		}
		if ofEachClass(string(out)) {
			return string(out)
		}
	}
}

// ofEachClass also wants a letter first: some BMCs refuse a sign there.
func ofEachClass(password string) bool {
	for _, class := range passwordClasses {
		if !strings.ContainsAny(password, class) {
			return false
		}
	}
	return strings.ContainsAny(password[:1], passwordClasses[0]+passwordClasses[1])
}
