package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/safetext"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// atOnce is how many addresses are worked on at a time.
	atOnce = 32
	// connectWithin is how long an address may take to show that anything is there, and answerWithin to give an answer
	// without a log-in.
	connectWithin = 3 * time.Second
	answerWithin  = 10 * time.Second
	// readWithin is how long a BMC that has answered may take to be read: the slowest that are known take 5 s a document.
	readWithin = 45 * time.Second
)

// Found is what answers at one address, in its own words.
type Found struct {
	Address  netip.Addr
	Endpoint string
	Protocol bmc.Protocol // Unknown where something listens and sends no answer
	provider.Hardware
	// Problem is why it is not known which machine this is.
	Problem string
}

// Request has the addresses to search, and the credentials.
type Request struct {
	Addresses []netip.Addr
	// Port of both protocols; 0 means 443 and 623.
	Port int
	// Ref names the credentials. Credentials is nil where they are for none of the addresses.
	Ref         string
	Credentials *bmc.Credentials
}

// Result is what a discovery has found.
type Result struct {
	BMCs []Found
	// Skipped is the number of addresses that were not reached before ctx ended.
	Skipped int
	// Problem is why less was done than was asked for.
	Problem string
}

// run is one discovery that is under way.
type run struct {
	Request
	bmcs *bmc.Provider
	gate *gate

	mu   sync.Mutex
	next int
	out  Result
}

// Run looks at every address until it has come to all or ctx ends. It returns what it has found, sorted by address.
func Run(ctx context.Context, bmcs *bmc.Provider, r Request) Result {
	d := &run{Request: r, bmcs: bmcs, gate: newGate()}
	var workers sync.WaitGroup
	for range min(atOnce, len(r.Addresses)) {
		workers.Go(func() {
			for addr, ok := d.take(ctx); ok; addr, ok = d.take(ctx) {
				var found *Found
				err := task.Run(ctx, "discover BMC", func(ctx context.Context) error {
					found = d.look(ctx, addr)
					return nil
				})
				if err != nil { // a panic, of a parser
					found = &Found{Address: addr, Endpoint: d.endpoint("", addr), Problem: "its answer could not be read"}
				}
				d.put(found)
			}
		})
	}
	workers.Wait()
	d.out.Skipped += len(r.Addresses) - d.next
	d.out.Problem = d.gate.problem(r.Ref)
	slices.SortFunc(d.out.BMCs, func(a, b Found) int { return a.Address.Compare(b.Address) })
	judge(d.out.BMCs)
	return d.out
}

func (d *run) take(ctx context.Context) (netip.Addr, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil || d.next == len(d.Addresses) {
		return netip.Addr{}, false
	}
	d.next++
	return d.Addresses[d.next-1], true
}

func (d *run) put(f *Found) {
	if f == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.BMCs = append(d.out.BMCs, *f)
}

// endpoint is an address as the endpoint of a BMC.
func (d *run) endpoint(p bmc.Protocol, addr netip.Addr) string {
	host := addr.String()
	switch {
	case d.Port != 0:
		host = netip.AddrPortFrom(addr, uint16(d.Port)).String()
	case addr.Is6():
		host = "[" + host + "]"
	}
	if p == bmc.Unknown {
		return host
	}
	return string(p) + "://" + host
}

// look asks one address. It returns nil where nothing is that could be a BMC.
func (d *run) look(ctx context.Context, addr netip.Addr) *Found {
	f := d.present(ctx, addr)
	if f == nil {
		return nil
	}
	if f.Protocol == bmc.Unknown && ctx.Err() != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.out.Skipped++ // it had no time to answer
		return nil
	}
	f.Endpoint = d.endpoint(f.Protocol, addr)
	if f.Protocol == bmc.Unknown {
		return f
	}
	if f.Problem = d.mayLogIn(f.Endpoint); f.Problem == "" {
		d.read(ctx, f)
	}
	return f
}

// mayLogIn returns the reason why no credentials may be sent to the endpoint, or "". The provider checks it again.
func (d *run) mayLogIn(endpoint string) string {
	a, err := bmcaddr.Parse(endpoint)
	if err != nil {
		return err.Error()
	}
	if d.Credentials == nil || !d.Credentials.Allowed.Covers(a) {
		return fmt.Sprintf("the credentials %s are not for it; no password was sent", d.Ref)
	}
	return ""
}

// read logs in and asks what machine it is.
func (d *run) read(ctx context.Context, f *Found) {
	if !d.gate.enter(ctx) {
		f.Problem = "not logged in to"
		if ctx.Err() == nil {
			f.Problem += ": three BMCs in a row have refused the credentials " + d.Ref
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	var once sync.Once
	leave := func(o outcome) { once.Do(func() { d.gate.leave(o, f.Address) }) }
	defer leave(unknown)
	vendor := f.Vendor
	var err error
	f.Hardware, err = d.bmcs.Hardware(ctx, f.Endpoint, d.Ref, *d.Credentials, func() { leave(taken) })
	f.Vendor = cmp.Or(f.Vendor, vendor)
	if errors.Is(err, provider.ErrCredentials) {
		leave(refused)
	}
	if err != nil {
		f.Problem = brief(failure.From(err).Message)
	}
}

// brief keeps a message of others to a line.
func brief(text string) string {
	const most = 300
	return safetext.Bounded(text, most)
}
