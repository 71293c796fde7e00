package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/provider/ipmi"
	"github.com/ingot-metal/ingot/agent/provider/redfish"
	"github.com/ingot-metal/ingot/internal/cloudmeta"
	"github.com/ingot-metal/ingot/internal/task"
)

// present asks without credentials in which protocol a BMC answers at an address, Redfish before IPMI. It returns nil
// where none does.
func (d *run) present(ctx context.Context, addr netip.Addr) *Found {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var (
		both       sync.WaitGroup
		viaIPMI    = errors.New("not asked")
		vendor     string
		viaRedfish error
	)
	both.Go(func() {
		viaIPMI = task.Run(ctx, "ping BMC", func(ctx context.Context) error {
			return ipmi.Ping(ctx, d.at(addr, "623"))
		})
	})
	viaRedfish = task.Run(ctx, "ask for a service root", func(ctx context.Context) (err error) {
		vendor, err = serviceRoot(ctx, d.at(addr, "443"))
		return err
	})
	both.Wait()
	f := &Found{Address: addr}
	switch {
	case viaRedfish == nil:
		f.Protocol, f.Vendor = bmc.Redfish, vendor
	case viaIPMI == nil:
		f.Protocol = bmc.IPMI
	case errors.Is(viaRedfish, errNobody), errors.Is(viaRedfish, provider.ErrProtocol) &&
		!errors.Is(viaRedfish, provider.ErrOldTLS) && !errors.Is(viaRedfish, provider.ErrRSAOnly):
		return nil
	case errors.Is(viaRedfish, provider.ErrOldTLS):
		f.Problem = "it has no TLS 1.2; older TLS is not spoken"
	case errors.Is(viaRedfish, provider.ErrRSAOnly):
		f.Problem = "its TLS exchanges keys by RSA alone, without forward secrecy, which is not spoken"
	case errors.Is(viaRedfish, provider.ErrCredentials):
		f.Problem = "it shows nothing before a log-in, so that it may be something else than a BMC; no password was sent"
	default:
		f.Problem = fmt.Sprintf("something listens, and gives no answer of Redfish within %v", answerWithin)
	}
	return f
}

// at is host:port of an address, with the protocol's own port where none is asked for.
func (d *run) at(addr netip.Addr, own string) string {
	if d.Port != 0 {
		own = strconv.Itoa(d.Port)
	}
	return net.JoinHostPort(addr.String(), own)
}

// errNobody: nothing takes connections there.
var errNobody = errors.New("nothing listens")

// serviceRoot reads the service root, of whatever certificate: no password is sent. The log-in pins the one that it
// meets.
func serviceRoot(ctx context.Context, at string) (vendor string, err error) {
	conn, err := (&net.Dialer{Timeout: connectWithin, Control: cloudmeta.Control}).DialContext(ctx, "tcp", at)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNobody, err)
	}
	if err := conn.Close(); err != nil {
		return "", fmt.Errorf("%w: %w", errNobody, err)
	}
	return redfish.Vendor(ctx, redfish.Config{
		URL: "https://" + at, Timeout: answerWithin, MaxDocument: bmc.MaxUnknownDocument,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, //nolint:gosec // see above
	})
}
