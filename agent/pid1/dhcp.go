package pid1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// firstRetransmission doubles with each try.
	firstRetransmission = 500 * time.Millisecond
	// attempt ends one exchange, and so bounds the doubling: a server that comes back is found soon.
	attempt = 8 * time.Second
	// defaultLease is for a server that doesn't say how long.
	defaultLease = time.Hour
)

// ErrNoLease is returned when no DHCP server answered with an address.
var ErrNoLease = errors.New("no answer by DHCP on any interface with a link")

// lease is an address that a DHCP server (RFC 2131) gave to an interface for a while.
type lease struct {
	link    netlink.Link
	network Network
	// length is how long it holds from the moment at which it was given.
	length time.Duration
	raw    *nclient4.Lease
}

// acquireAny asks on every Ethernet interface that has a link, or on the one with the MAC, and takes the first
// answer. Interfaces that get their link later, as real ones do after seconds, are asked then.
func acquireAny(ctx context.Context, mac string, limit time.Duration) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	group, groupCtx := task.New(ctx)
	answers := make(chan lease, 1)
	asked := map[int]bool{}
	var answer lease
	found := poll(ctx, limit, func() bool {
		select {
		case answer = <-answers:
			return true
		default:
		}
		for _, link := range ready(mac) {
			if !asked[link.Attrs().Index] {
				asked[link.Attrs().Index] = true
				group.Go("dhcp", func(context.Context) error { return ask(groupCtx, link, answers) })
			}
		}
		return false
	})
	cancel()
	err := group.Wait()
	if !found {
		return lease{}, errors.Join(ErrNoLease, err)
	}
	return answer, nil
}

// ready brings every candidate up and returns those that have a link. A list that can't be had now is asked for again.
func ready(mac string) []netlink.Link {
	links, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	var up []netlink.Link
	for _, link := range ethernet(links, mac) {
		flags := link.Attrs().Flags
		switch {
		case flags&net.FlagUp == 0:
			// An interface that can't be brought up is none; others may do.
			_ = netlink.LinkSetUp(link)
		case flags&net.FlagRunning != 0:
			up = append(up, link)
		}
	}
	return up
}

// ask repeats until there is an answer or ctx ends. Only the first answer of all interfaces finds room.
func ask(ctx context.Context, link netlink.Link, answers chan<- lease) error {
	for ctx.Err() == nil {
		l, err := acquire(ctx, link)
		if err != nil {
			continue // refused or silent: asked again
		}
		select {
		case answers <- l:
		default:
		}
		return nil
	}
	return nil
}

// acquire is one exchange of discover, offer, request and acknowledgement.
func acquire(ctx context.Context, link netlink.Link) (lease, error) {
	return exchange(ctx, link, func(ctx context.Context, c *nclient4.Client) (*nclient4.Lease, error) {
		return c.Request(ctx, wanted)
	})
}

// renew asks for more of the same lease. It broadcasts, as RFC 2131 has it for rebinding: the socket of the exchange
// can't do otherwise.
func renew(ctx context.Context, l lease) (lease, error) {
	return exchange(ctx, l.link, func(ctx context.Context, c *nclient4.Client) (*nclient4.Lease, error) {
		return c.Renew(ctx, l.raw, wanted)
	})
}

type dialogue func(context.Context, *nclient4.Client) (*nclient4.Lease, error)

func exchange(ctx context.Context, link netlink.Link, with dialogue) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	a := link.Attrs()
	client, err := nclient4.New(a.Name, nclient4.WithTimeout(firstRetransmission), nclient4.WithRetry(-1),
		nclient4.WithHWAddr(a.HardwareAddr))
	if err != nil {
		pause(pollInterval) // the caller asks again at once
		return lease{}, fmt.Errorf("ask for an address on %s: %w", a.Name, err)
	}
	raw, err := with(ctx, client)
	if err := errors.Join(err, client.Close()); err != nil {
		return lease{}, fmt.Errorf("ask for an address on %s: %w", a.Name, err)
	}
	network, length, err := read(raw.ACK)
	if err != nil {
		return lease{}, fmt.Errorf("ask for an address on %s: %w", a.Name, err)
	}
	return lease{link: link, network: network, length: length, raw: raw}, nil
}

// wanted are the options to be sent beside those that the library asks for.
func wanted(m *dhcpv4.DHCPv4) {
	dhcpv4.WithRequestedOptions(dhcpv4.OptionHostName, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer)(m)
}

// read returns the used settings of an acknowledgement. A network mask that is missing is that of the address's old
// class; so RFC 2132 leaves it.
func read(ack *dhcpv4.DHCPv4) (Network, time.Duration, error) {
	address, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || address.IsUnspecified() {
		return Network{}, 0, errors.New("the answer has no address")
	}
	mask := ack.SubnetMask()
	if mask == nil {
		mask = ack.YourIPAddr.DefaultMask()
	}
	ones, bits := mask.Size()
	if bits != 32 {
		return Network{}, 0, fmt.Errorf("the answer has the network mask %v", mask)
	}
	n := Network{Hostname: firstLabel(ack.HostName()), Address: netip.PrefixFrom(address, ones)}
	if routers := addrs(ack.Router()); len(routers) > 0 {
		n.Gateway = routers[0]
	}
	n.DNS = addrs(ack.DNS())
	return n, ack.IPAddressLeaseTime(defaultLease), nil
}

// firstLabel returns the host's part of a name when it is a host name (RFC 1123), else "".
func firstLabel(name string) string {
	label, _, _ := strings.Cut(name, ".")
	ok := len(label) <= 63 && !strings.HasPrefix(label, "-") && strings.IndexFunc(label, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-')
	}) < 0
	if !ok {
		return ""
	}
	return label
}

func addrs(ips []net.IP) []netip.Addr {
	var out []netip.Addr
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip.To4()); ok && !a.IsUnspecified() {
			out = append(out, a)
		}
	}
	return out
}

// keep renews the lease at half of its time, and asks anew when it has ended, until ctx ends. changed is called for
// every lease with another address.
func keep(ctx context.Context, c clock.Clock, l lease, changed func(old, current lease) error) error {
	given := c.Now()
	for {
		if err := wait(ctx, c, max(l.length/2, time.Second)); err != nil {
			return err
		}
		next, err := again(ctx, c, l, given.Add(l.length))
		if err != nil {
			return err
		}
		given = c.Now()
		if next.network.Address != l.network.Address || next.network.Gateway != l.network.Gateway {
			if err := changed(l, next); err != nil {
				return err
			}
		}
		l = next
	}
}

func extend(ctx context.Context, l lease, renewable bool) (lease, error) {
	if renewable {
		return renew(ctx, l)
	}
	return acquire(ctx, l.link)
}

// again renews until the end of the lease, and then asks for a new one for as long as it takes. A refusal ends the
// lease at once.
func again(ctx context.Context, c clock.Clock, l lease, end time.Time) (lease, error) {
	for {
		next, err := extend(ctx, l, c.Now().Before(end))
		var refused *nclient4.ErrNak
		switch {
		case err == nil:
			return next, nil
		case ctx.Err() != nil:
			return lease{}, context.Cause(ctx)
		case errors.As(err, &refused):
			end = c.Now()
		}
		if err := wait(ctx, c, restartDelay); err != nil {
			return lease{}, err
		}
	}
}
