package site

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/dhcp"
	"github.com/ingot-metal/ingot/agent/site/httpboot"
	"github.com/ingot-metal/ingot/agent/site/ra"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/agent/site/tftp"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// restartAfter is the wait before a service that has failed is started again.
	restartAfter = 2 * time.Second
	// upWait is how long a new segment may take to answer before the document counts as served without it.
	upWait = 3 * time.Second
)

// segmentServer is one segment that is served. Its services fail and are started again each by itself.
type segmentServer struct {
	s       *Service
	segment segment.Segment
	table   *segment.Table
	stop    func()

	mu   sync.Mutex
	view httpboot.View
	http *httpboot.Server
	dhcp *dhcp.Server
	// state is why a service is down, by its name; empty when it is up, absent when it is starting.
	state map[string]string
	// changed is closed when state has changed.
	changed chan struct{}
}

// service is one of a segment's: up is called when it answers.
type service func(ctx context.Context, up func()) error

// start begins to serve a segment.
func (s *Service) start(sp segmentPlan) (*segmentServer, error) {
	r := &segmentServer{
		s: s, segment: sp.segment, table: &segment.Table{}, view: sp.view, state: map[string]string{},
		changed: make(chan struct{}),
	}
	if err := r.table.Replace(sp.doc); err != nil {
		return nil, err
	}
	services := r.services()
	ended := make(chan struct{})
	ctxReady := make(chan context.CancelFunc, 1)
	s.group.Go("segment "+sp.segment.Name, func(ctx context.Context) error {
		defer close(ended)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ctxReady <- cancel
		group, _ := task.New(ctx)
		for name, run := range services {
			group.Go(name, func(ctx context.Context) error { return r.keep(ctx, name, run) })
		}
		return group.Wait()
	})
	cancel := <-ctxReady
	r.stop = func() {
		cancel()
		<-ended
	}
	return r, nil
}

// keep runs a service until ctx ends, again and again.
func (r *segmentServer) keep(ctx context.Context, name string, run service) error {
	for {
		err := task.Run(ctx, name, func(ctx context.Context) error { return run(ctx, func() { r.tell(name, "") }) })
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		if r.tell(name, err.Error()) {
			r.s.cfg.Log.Error("service of a segment is down; starting it again", "segment", r.segment.Name, "service", name,
				"interface", r.segment.Interface, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.s.cfg.Clock.After(restartAfter):
		}
	}
}

// tell records the state of a service, and reports whether it has changed.
func (r *segmentServer) tell(name, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, said := r.state[name]
	r.state[name] = why
	close(r.changed)
	r.changed = make(chan struct{})
	return !said || before != why
}

// awaitUp returns when every service has said how it is, or after a while.
func (r *segmentServer) awaitUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upWait)
	defer cancel()
	for {
		r.mu.Lock()
		all, changed := len(r.state) == len(r.services()), r.changed
		r.mu.Unlock()
		if all {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// services are those of a segment by their names. Both kinds of DHCP segments need all of them, and one without DHCP
// only the boot server.
func (r *segmentServer) services() map[string]service {
	if r.segment.Mode == segment.ModeStatic {
		return map[string]service{"http": r.serveHTTP}
	}
	return map[string]service{"http": r.serveHTTP, "dhcp": r.serveDHCP, "tftp": r.serveTFTP, "ra": r.advertise}
}

// fits reports whether a plan can be served without a restart.
func (r *segmentServer) fits(sp segmentPlan) bool { return reflect.DeepEqual(r.segment, sp.segment) }

// set makes the services answer by another plan. When it returns none answers by the one before.
func (r *segmentServer) set(sp segmentPlan) error {
	if err := r.table.Replace(sp.doc); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view = sp.view
	if r.http != nil {
		r.http.Set(sp.view)
	}
	return nil
}

func (r *segmentServer) serveHTTP(ctx context.Context, up func()) error {
	h := httpboot.New(httpboot.Config{
		Segment: r.segment, Blobs: r.s.cache.Open, Owner: r.owner, Vouch: r.s.vouch,
		PhonedHome: r.s.cfg.PhonedHome, Certified: r.s.certified,
		DialController: r.s.cfg.DialController, Log: r.s.cfg.Log.With("segment", r.segment.Name),
	})
	r.mu.Lock()
	h.Set(r.view)
	r.http = h
	r.mu.Unlock()
	if err := h.Listen(ctx); err != nil {
		return err
	}
	up()
	return h.Run(ctx)
}

func (r *segmentServer) serveDHCP(ctx context.Context, up func()) error {
	d, err := dhcp.New(dhcp.Config{
		Segments: []segment.Segment{r.segment}, Book: r.table, Store: r.s.cfg.Store, Unknown: r.unknownDHCP,
		Clock: r.s.cfg.Clock, Log: r.s.cfg.Log,
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.dhcp = d
	r.mu.Unlock()
	return untilReady(ctx, d, up)
}

func (r *segmentServer) serveTFTP(ctx context.Context, up func()) error {
	files, err := r.s.bootPrograms()
	if err != nil {
		return err
	}
	t, err := tftp.New(tftp.Config{
		Interface: r.segment.Interface, Address: r.segment.Address.Addr(), Files: files, Clock: r.s.cfg.Clock,
		Log: r.s.cfg.Log.With("segment", r.segment.Name),
	})
	if err != nil {
		return err
	}
	return untilReady(ctx, t, up)
}

// advertise is up at once: an interface without IPv6 needs no advertisements.
func (r *segmentServer) advertise(ctx context.Context, up func()) error {
	a, err := ra.New(ra.Config{
		Interface: r.segment.Interface, Clock: r.s.cfg.Clock, Log: r.s.cfg.Log.With("segment", r.segment.Name),
	})
	if err != nil {
		return err
	}
	up()
	return a.Run(ctx)
}

// server is what the services of a segment have in common.
type server interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}

// untilReady runs a server and calls up when it answers.
func untilReady(ctx context.Context, s server, up func()) error {
	group, _ := task.New(ctx)
	group.Go("run", func(ctx context.Context) error {
		if err := s.Run(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		return errors.New("ended by itself")
	})
	group.Go("ready", func(ctx context.Context) error {
		select {
		case <-s.Ready():
			up()
		case <-ctx.Done():
		}
		return nil
	})
	return group.Wait()
}

// owner returns the network card that has an address of the segment.
func (r *segmentServer) owner(a netip.Addr) (segment.MAC, bool) {
	r.mu.Lock()
	d := r.dhcp
	r.mu.Unlock()
	var lent segment.MAC
	var isLent bool
	if d != nil {
		lent, isLent = ownerByLease(d.Leases(), a, r.s.cfg.Clock.Now())
	}
	seen, isSeen := neighbour(r.segment.Interface, a)
	return agree(r.segment.Mode, lent, isLent, seen, isSeen)
}

// vouch asks the controller to certify an installer.
func (s *Service) vouch(
	ctx context.Context, req *fleetv1.VouchInstallerRequest,
) (resp *fleetv1.VouchInstallerResponse, err error) {
	err = s.cfg.Call(ctx, func(ctx context.Context, c fleetv1.AgentServiceClient) (err error) {
		resp, err = c.VouchInstaller(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("vouch for installer: %w", err)
	}
	return resp, nil
}
