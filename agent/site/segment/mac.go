package segment

import (
	"fmt"
	"net"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// MAC is the 48-bit address of a network card. It compares with ==; the zero value is no card's.
type MAC [6]byte

// ParseMAC reads what hwid.MAC reads.
func ParseMAC(text string) (MAC, error) {
	mac, err := hwid.MACBytes(text)
	if err != nil {
		return MAC{}, fmt.Errorf("parse MAC address %q: %w", text, err)
	}
	return mac, nil
}

// MACOf converts an address of the net package, if it has six bytes that are not all zero.
func MACOf(hw net.HardwareAddr) (MAC, bool) {
	if len(hw) != len(MAC{}) {
		return MAC{}, false
	}
	mac := MAC(hw)
	return mac, mac != MAC{}
}

// Hardware is the address in the form of the net package.
func (m MAC) Hardware() net.HardwareAddr { return net.HardwareAddr(m[:]) }

// String is the one form that is used in URLs, logs and documents: lower case with colons.
func (m MAC) String() string { return m.Hardware().String() }

// MarshalText returns the form of String.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMAC reads.
func (m *MAC) UnmarshalText(text []byte) error {
	parsed, err := ParseMAC(string(text))
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}
