package secret

import (
	"encoding/json"
	"fmt"
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
	raw, err := b.Open(bmcName(ref), sealed)
	if err != nil {
		return BMC{}, err
	}
	var c BMC
	if err := json.Unmarshal(raw, &c); err != nil {
		return BMC{}, fmt.Errorf("parse credentials: %w", ErrSealed)
	}
	return c, nil
}
