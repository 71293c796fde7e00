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

// Hardware reads what the service says of the machine. That its interfaces cannot be read, or not in time, costs no
// more than their addresses: found has the rest beside an error of theirs.
func (c *Client) Hardware(ctx context.Context) (found provider.Hardware, err error) {
	err = c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err != nil {
			return err
		}
		found = provider.Hardware{Vendor: s.Manufacturer.V, Model: s.Model.V, Serial: s.Serial.V, UUID: s.UUID.V}
		found.MACs, err = c.interfaces(s)
		if err == nil && len(found.MACs) == 0 {
			found.MACs, err = c.adapters(s)
		}
		return err
	})
	return found, err
}

// interfaces reads the addresses of the system's own interfaces.
func (c *Client) interfaces(s system) ([]string, error) {
	return c.each(s.EthernetInterfaces, maxInterfaces, func(b []byte) ([]string, error) { return macsOf(b), nil })
}

// adapters reads them from the cards of the machine's chassis: some systems link to no interfaces.
func (c *Client) adapters(s system) (out []string, err error) {
	for _, p := range s.Links.V.Chassis[:min(len(s.Links.V.Chassis), maxChassis)] {
		b, _, err := c.get(p)
		if c.failed(err) {
			return out, err
		}
		var holder struct{ NetworkAdapters path }
		if err != nil || json.Unmarshal(b, &holder) != nil {
			continue
		}
		macs, err := c.each(holder.NetworkAdapters, maxAdapters, func(b []byte) ([]string, error) {
			var a adapter
			if json.Unmarshal(b, &a) != nil {
				return nil, nil
			}
			return c.each(a.NetworkDeviceFunctions, maxInterfaces, func(b []byte) ([]string, error) {
				var f deviceFunction
				if json.Unmarshal(b, &f) != nil {
					return nil, nil
				}
				return macsOf(f.Ethernet.V), nil
			})
		})
		if out = append(out, macs...); err != nil {
			return out, err
		}
	}
	return out, nil
}

// each reads members of a collection, at most so many, and gathers what macs finds in them, each address once. A link
// that leads nowhere is left out.
func (c *Client) each(list path, most int, macs func([]byte) ([]string, error)) (out []string, err error) {
	members, err := c.members(list)
	if c.failed(err) {
		return nil, err
	}
	for _, p := range members[:min(len(members), most)] {
		b, _, err := c.get(p)
		if c.failed(err) {
			return out, err
		}
		if err != nil {
			continue
		}
		found, err := macs(b)
		for _, mac := range found {
			if mac != "" && !slices.Contains(out, mac) {
				out = append(out, mac)
			}
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
