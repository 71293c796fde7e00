package redfish

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// ReasonWhichSystem is the reason of a refusal where nothing tells which of a service's systems is meant.
const ReasonWhichSystem = "WHICH_SYSTEM"

// findSystem takes the system that was named, or the only one, or the one that shows itself to be the machine.
func (c *Client) findSystem(ctx context.Context) error {
	if err := c.readRoot(ctx); err != nil {
		return err
	}
	if c.root.Systems == "" {
		return fmt.Errorf("%w: the service has no systems", provider.ErrProtocol)
	}
	b, _, err := c.get(c.root.Systems)
	if err != nil {
		return err
	}
	list, err := parseCollection(b)
	if err != nil {
		return err
	}
	paths := list.links()
	switch {
	case len(paths) == 0:
		return fmt.Errorf("%w: the service has no systems", provider.ErrRefused)
	case c.cfg.System != "":
		return c.takeNamed(paths)
	case len(paths) == 1:
		c.system = paths[0]
		return nil
	}
	return c.recognize(paths)
}

func (c *Client) takeNamed(paths []path) error {
	for _, p := range paths {
		if strings.TrimSuffix(string(p), "/") == strings.TrimSuffix(c.cfg.System, "/") {
			c.system = p
			return nil
		}
	}
	return whichSystem(paths, "none of which is "+c.cfg.System)
}

// candidate is one of several systems, and what is known of it.
type candidate struct {
	path path
	doc  system
	mac  bool // one of its interfaces has an address of the machine
}

// recognize reads each system.
func (c *Client) recognize(paths []path) error {
	var all []candidate
	for _, p := range paths {
		b, _, err := c.get(p)
		if err != nil {
			return err
		}
		doc, err := parseSystem(b)
		if err != nil {
			return err
		}
		mac, err := c.hasMAC(doc)
		if err != nil {
			return err
		}
		all = append(all, candidate{path: p, doc: doc, mac: mac})
		if mac {
			break // nothing tells more
		}
	}
	found, why := c.cfg.pick(all)
	if why != "" {
		return whichSystem(paths, why)
	}
	c.system = found
	return nil
}

// pick goes by MAC address, UUID and serial number, and takes else the only system that can be switched: a board of
// GPUs beside the machine can't be. Where two fit, nothing is guessed.
func (cfg Config) pick(all []candidate) (found path, why string) {
	for _, sign := range []struct {
		fits func(candidate) bool
		name string
	}{
		{func(s candidate) bool { return s.mac }, "the MAC address"},
		{func(s candidate) bool { return cfg.UUID != "" && strings.EqualFold(s.doc.UUID.V, cfg.UUID) }, "the UUID"},
		{func(s candidate) bool { return cfg.Serial != "" && s.doc.Serial.V == cfg.Serial }, "the serial number"},
		{func(s candidate) bool { return s.doc.Actions.V.Reset.V.Target.V != "" }, "a reset"},
	} {
		var fit []path
		for _, s := range all {
			if sign.fits(s) {
				fit = append(fit, s.path)
			}
		}
		switch len(fit) {
		case 0:
		case 1:
			return fit[0], ""
		default:
			return "", fmt.Sprintf("%d of which have %s, and nothing else tells which is this machine", len(fit), sign.name)
		}
	}
	return "", "none of which is known to be this machine or can be switched"
}

func whichSystem(paths []path, why string) error {
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, string(p))
	}
	return &effect.Refusal{
		Kind: effect.ErrInvalid, Reason: ReasonWhichSystem,
		Detail: fmt.Sprintf("the BMC has the systems %s, %s; name one in the endpoint: redfish://HOST%s",
			strings.Join(names, ", "), why, names[0]),
	}
}

func (c *Client) hasMAC(s system) (bool, error) {
	if s.EthernetInterfaces == "" || len(c.cfg.MACs) == 0 {
		return false, nil
	}
	b, _, err := c.get(s.EthernetInterfaces)
	if err != nil {
		if c.failed(err) {
			return false, err
		}
		return false, nil
	}
	nics, err := parseCollection(b)
	if err != nil {
		return false, err
	}
	for _, nic := range nics.links() {
		if b, _, err = c.get(nic); err != nil {
			return false, err
		}
		if slices.ContainsFunc(macsOf(b), func(mac string) bool { return slices.Contains(c.cfg.MACs, mac) }) {
			return true, nil
		}
	}
	return false, nil
}
