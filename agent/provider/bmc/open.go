package bmc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/ipmi"
	"github.com/ingot-metal/ingot/agent/provider/redfish"
)

// probeWithin bounds a handshake that looks at a certificate alone.
const probeWithin = 5 * time.Second

// open makes a session in the endpoint's protocol, in the one that was found before, or in the one that is found now.
func (p *Provider) open(
	ctx context.Context, l *conn, e Endpoint, t provider.Target, creds Credentials,
) (driver, error) {
	if e.Protocol == Unknown {
		if l.record.Protocol == Unknown {
			found, err := p.probe(ctx, l, e, creds)
			if err != nil {
				return nil, err
			}
			l.record.Protocol = found
			p.cfg.Log.InfoContext(ctx, "BMC found", "bmc", l.key, "protocol", string(found))
		}
		e.Protocol = l.record.Protocol
	}
	l.spokeIn = e.Protocol
	return p.dial(ctx, l, e, t, creds)
}

// dial logs in.
func (p *Provider) dial(
	ctx context.Context, l *conn, e Endpoint, t provider.Target, creds Credentials,
) (driver, error) {
	t = p.known(t)
	if e.Protocol == IPMI {
		c, err := ipmi.Open(ctx, ipmi.Config{Addr: e.rmcp(), Username: creds.Username, Password: creds.Password,
			BIOS: t.BIOS, Administrator: l.account})
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	cfg := p.redfish(l, e, creds)
	cfg.Username, cfg.Password, cfg.MACs = creds.Username, creds.Password, t.MACs
	cfg.System, cfg.UUID, cfg.Serial, cfg.BIOS = e.System, t.UUID, t.Serial, t.BIOS
	cfg.Account = l.account
	cfg.OneLogin = l.account
	if t.MachineID == "" {
		cfg.MaxDocument, cfg.OneLogin = MaxUnknownDocument, true
	}
	c, err := redfish.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p *Provider) redfish(l *conn, e Endpoint, creds Credentials) redfish.Config {
	return redfish.Config{
		URL: e.url(), TLS: p.trust(l, e.name(), creds), Timeout: p.patience(l) / 2, Grace: max(farewell, 2*l.slowest),
		Heard: l.heard,
	}
}

// probe finds out how a BMC wants to be spoken to: Redfish first. No credentials are used.
func (p *Provider) probe(ctx context.Context, l *conn, e Endpoint, creds Credentials) (Protocol, error) {
	redfishCtx, cancel := context.WithTimeout(ctx, p.patience(l)/2) // so that the second protocol has its time
	defer cancel()
	viaRedfish := redfish.Probe(redfishCtx, p.redfish(l, e, creds))
	if viaRedfish == nil {
		return Redfish, nil
	}
	if errors.Is(viaRedfish, provider.ErrCertificate) {
		return Unknown, viaRedfish // another host on the network may want to force the protocol that is easier to listen to
	}
	viaIPMI := ipmi.Ping(ctx, e.rmcp())
	if viaIPMI == nil {
		return IPMI, nil
	}
	return Unknown, fmt.Errorf("%w: neither Redfish (%w) nor IPMI (%w)", provider.ErrSilent, viaRedfish, viaIPMI)
}
