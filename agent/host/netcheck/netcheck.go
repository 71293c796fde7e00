// Package netcheck examines a network configuration that a host has just been given: duplicate addresses, gateways,
// path MTU, members of bonds and name servers. A new connection to the controller is small packets to one peer, and
// proves none of these.
//
// Each check has a plain result. Unknown means that nothing could be proven either way, such as the path MTU where no
// ICMP echo is answered; it is no failure.
package netcheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
)

// Result is what a check has found.
type Result string

// The results, from the best to the worst.
const (
	Pass    Result = "pass"
	Unknown Result = "unknown"
	Warn    Result = "warn"
	Fail    Result = "fail"
)

// The names of the checks.
const (
	DuplicateAddress = "duplicate_address"
	Gateway          = "gateway"
	PathMTU          = "path_mtu"
	Link             = "link"
	BondMembers      = "bond_members"
	BondPartner      = "bond_partner"
	NameServer       = "name_server"
)

// Check is the result of one check of one subject.
type Check struct {
	Name string
	// Subject is what was examined, such as "eth0 192.0.2.7".
	Subject string
	Result  Result
	Detail  string
}

// String is such as "fail gateway eth0 192.0.2.1: no answer".
func (c Check) String() string {
	return fmt.Sprintf("%s %s %s: %s", c.Result, c.Name, c.Subject, c.Detail)
}

// Key names the check in the evidence of a command, such as "check.gateway.eth0_192.0.2.1".
func (c Check) Key() string {
	return "check." + c.Name + "." + strings.ReplaceAll(c.Subject, " ", "_")
}

// Order is what to examine.
type Order struct {
	Interfaces []Interface
	// Controllers are the addresses that the path MTU is examined to, with the interface that leads there.
	Controllers []Way
}

// Interface is one of the configuration, by its name in the kernel.
type Interface struct {
	Name      string
	Addresses []Address
	// Gateway is the zero Addr where none is ordered.
	Gateway netip.Addr
	// MTU is 0 where none is ordered.
	MTU int
	// Members are those of a bond, by name; LACP: the bond needs a partner.
	Members []string
	LACP    bool
	DNS     []netip.Addr
}

// Address is an ordered address. New: the interface did not have it before.
type Address struct {
	Addr netip.Addr
	New  bool
}

// Way is an address and the interface that leads there. MTU is 0 where none is ordered for the interface.
type Way struct {
	To        netip.Addr
	Interface string
	MTU       int
}

// Run makes all checks at once, which takes about 5 s where something does not answer. The checks are in order of
// subject.
func Run(ctx context.Context, o Order) []Check {
	g, _ := task.New(ctx)
	r := &results{}
	servers := map[netip.Addr]string{}
	for _, i := range o.Interfaces {
		carrier := checkLink(i)
		r.add(carrier)
		if len(i.Members) > 0 {
			r.add(checkBond(i)...)
		}
		if carrier.Result != Pass {
			r.add(notMade(i, carrier.Detail)...)
			continue
		}
		for _, s := range i.DNS {
			servers[s] = i.Name
		}
		for _, a := range i.Addresses {
			r.start(g, DuplicateAddress, i.Name+" "+a.Addr.String(),
				func(ctx context.Context) Check { return duplicate(ctx, i.Name, a) })
		}
		if i.Gateway.IsValid() {
			r.start(g, Gateway, i.Name+" "+i.Gateway.String(),
				func(ctx context.Context) Check { return neighbour(ctx, i.Name, i.Gateway) })
			r.start(g, PathMTU, i.Name+" "+i.Gateway.String(), func(ctx context.Context) Check {
				return pathMTU(ctx, probe{to: i.Gateway, over: i.Name, ordered: i.MTU, onLink: true})
			})
		}
	}
	for _, w := range o.Controllers {
		r.start(g, PathMTU, w.Interface+" "+w.To.String(), func(ctx context.Context) Check {
			return pathMTU(ctx, probe{to: w.To, over: w.Interface, ordered: w.MTU})
		})
	}
	if len(servers) > 0 {
		g.Go("name servers", func(ctx context.Context) error {
			r.add(nameServers(ctx, servers)...)
			return nil
		})
	}
	if err := g.Wait(); err != nil { // a panic: whatever it kept from being examined is not known
		r.add(Check{Name: "checks", Subject: "all", Result: Unknown, Detail: err.Error()})
	}
	slices.SortFunc(r.checks, func(a, b Check) int { return strings.Compare(a.Key(), b.Key()) })
	return r.checks
}

// notMade are the checks of an interface that nothing can be sent over.
func notMade(i Interface, why string) []Check {
	var out []Check
	add := func(name, subject string) {
		out = append(out, Check{Name: name, Subject: i.Name + " " + subject, Result: Unknown, Detail: why})
	}
	for _, a := range i.Addresses {
		add(DuplicateAddress, a.Addr.String())
	}
	if i.Gateway.IsValid() {
		add(Gateway, i.Gateway.String())
		add(PathMTU, i.Gateway.String())
	}
	for _, s := range i.DNS {
		add(NameServer, s.String())
	}
	return out
}

// results collects checks from several tasks.
type results struct {
	mu     sync.Mutex
	checks []Check
}

func (r *results) add(checks ...Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, checks...)
}

func (r *results) start(g *task.Group, name, subject string, fn func(context.Context) Check) {
	g.Go(name+" "+subject, func(ctx context.Context) error {
		c := fn(ctx)
		c.Name, c.Subject = name, subject
		r.add(c)
		return nil
	})
}

func pass(format string, args ...any) Check {
	return Check{Result: Pass, Detail: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) Check {
	return Check{Result: Unknown, Detail: fmt.Sprintf(format, args...)}
}

func warn(format string, args ...any) Check {
	return Check{Result: Warn, Detail: fmt.Sprintf(format, args...)}
}

func fail(format string, args ...any) Check {
	return Check{Result: Fail, Detail: fmt.Sprintf(format, args...)}
}
