package redfish

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// ReasonWhichSystem is the reason of a refusal where nothing identifies the one of a service's systems.
const ReasonWhichSystem = "WHICH_SYSTEM"

// findSystem takes the system that was named, or the only one, or the one that shows itself to be the machine.
func (c *Client) findSystem(ctx context.Context) error {
	if err := c.readRoot(ctx); err != nil {
		return err
	}
	if c.root.Systems == "" {
		return fmt.Errorf("%w: the service has no systems", provider.ErrProtocol)
	}
	sv := &survey{c: c}
	all, err := sv.members(c.root.Systems)
	if err != nil {
		return err
	}
	paths := links(all)
	switch {
	case len(paths) == 0:
		return fmt.Errorf("%w: the service has no systems", provider.ErrRefused)
	case c.cfg.System != "":
		return c.takeNamed(paths)
	case len(paths) == 1 && len(sv.missing) == 0:
		c.system = paths[0]
		return nil
	}
	return sv.recognize(paths)
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

// candidate is one of several systems, and its evidence.
type candidate struct {
	path path
	doc  system
	mac  bool // one of its interfaces has an address of the machine
}

// recognize reads each system. One that is listed and not found does not count. Any other that cannot be read might be
// the machine: then none is chosen by the capabilities of the others.
func (s *survey) recognize(paths []path) error {
	var all []candidate
	gone := 0
	for _, p := range paths {
		c, err := s.candidate(p)
		if code := statusOf(err); code == http.StatusNotFound || code == http.StatusGone {
			gone++
			continue
		}
		if err != nil {
			if err = s.miss(p, err); err != nil {
				return err
			}
			continue
		}
		all = append(all, c)
		if c.mac {
			break // no other sign distinguishes them
		}
	}
	if len(all) == 1 && gone == len(paths)-1 && len(s.missing) == 0 {
		s.c.system = all[0].path
		return nil
	}
	found, why := s.c.cfg.pick(all, len(s.missing) > 0)
	if why != "" {
		if len(s.missing) > 0 {
			why += " (not read: " + strings.Join(s.missing, "; ") + ")"
		}
		return whichSystem(paths, why)
	}
	s.c.system = found
	return nil
}

func (s *survey) candidate(p path) (out candidate, err error) {
	out.path = p
	b, _, err := s.c.get(p)
	if err == nil {
		out.doc, err = parseSystem(b)
	}
	if err == nil {
		out.mac, err = s.hasMAC(out.doc)
	}
	return out, classify(s.c.rt.ctx, err)
}

// pick goes by MAC address, UUID and serial number, and takes else the only system that can be switched: a board of
// GPUs beside the machine can't be. Where two fit, or where some were not read, nothing is guessed.
func (cfg Config) pick(all []candidate, some bool) (found path, why string) {
	for _, sign := range []struct {
		fits func(candidate) bool
		name string
	}{
		{func(s candidate) bool { return s.mac }, "the MAC address"},
		{func(s candidate) bool { is, known := hwid.SameUUID(s.doc.UUID.V, cfg.UUID); return is && known }, "the UUID"},
		{func(s candidate) bool { return hwid.SameSerial(s.doc.Serial.V, cfg.Serial) }, "the serial number"},
		{func(s candidate) bool { return !some && s.doc.Actions.V.Reset.V.Target.V != "" }, "a reset"},
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

// hasMAC reports whether an interface of the system has an address of the machine. Interfaces that cannot be read have
// none, and are no loss where another sign suffices.
func (s *survey) hasMAC(sys system) (found bool, err error) {
	if len(s.c.cfg.MACs) == 0 {
		return false, nil
	}
	apart := &survey{c: s.c}
	err = apart.each(sys.EthernetInterfaces, maxMembers, func(_ path, b []byte, _ string) error {
		found = slices.ContainsFunc(macsOf(b), func(mac string) bool { return slices.Contains(s.c.cfg.MACs, mac) })
		if found {
			return errEnough
		}
		return nil
	})
	return found, err
}
