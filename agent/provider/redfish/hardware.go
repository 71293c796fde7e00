package redfish

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/ingot-metal/ingot/agent/provider"
)

// What one call reads of network interfaces at most: BMCs are slow.
const (
	maxInterfaces = 16
	maxAdapters   = 8
)

// adapter is one network card of a chassis (DSP2046, NetworkAdapter), deviceFunction what a port of it is to the
// operating system (NetworkDeviceFunction).
type (
	adapter        struct{ NetworkDeviceFunctions path }
	deviceFunction struct{ Ethernet lenient[json.RawMessage] }
)

// Hardware reads the service's data on the machine. If its interfaces cannot be read, or not in time, only their
// addresses are missing: found has the rest beside the error.
func (c *Client) Hardware(ctx context.Context) (found provider.Hardware, err error) {
	err = c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err != nil {
			return err
		}
		found = provider.Hardware{Vendor: s.Manufacturer.V, Model: s.Model.V, Serial: s.Serial.V, UUID: s.UUID.V}
		sv := &survey{c: c}
		found.MACs, err = sv.interfaces(s)
		if err == nil && len(found.MACs) == 0 {
			found.MACs, err = sv.adapters(s)
		}
		if err != nil {
			return err
		}
		return sv.incomplete()
	})
	return found, err
}

// interfaces reads the addresses of the system's own interfaces.
func (s *survey) interfaces(sys system) (out []string, err error) {
	err = s.each(sys.EthernetInterfaces, maxInterfaces, func(_ path, b []byte, _ string) error {
		out = addMACs(out, macsOf(b))
		return nil
	})
	return out, err
}

// addMACs adds each address once.
func addMACs(out, more []string) []string {
	for _, mac := range more {
		if !slices.Contains(out, mac) {
			out = append(out, mac)
		}
	}
	return out
}

// adapters reads them from the cards of the machine's chassis: some systems link to no interfaces.
func (s *survey) adapters(sys system) (out []string, err error) {
	function := func(_ path, b []byte, _ string) error {
		var f deviceFunction
		if err := parseObject(b, &f); err != nil {
			return err
		}
		out = addMACs(out, macsOf(f.Ethernet.V))
		return nil
	}
	for _, p := range s.chassis(sys) {
		var holder struct{ NetworkAdapters path }
		if _, err := s.object(p, &holder); err != nil {
			return out, err
		}
		err := s.each(holder.NetworkAdapters, maxAdapters, func(_ path, b []byte, _ string) error {
			var a adapter
			if err := parseObject(b, &a); err != nil {
				return err
			}
			return s.each(a.NetworkDeviceFunctions, maxInterfaces, function)
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
