package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/agent/site/dhcp"
	"github.com/ingot-metal/ingot/agent/site/httpboot"
	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/media"
	"github.com/ingot-metal/ingot/agent/site/probe"
	sitesync "github.com/ingot-metal/ingot/agent/site/sync"
	"github.com/ingot-metal/ingot/agent/site/tftp"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Call makes a call to the controller on the connection of the agent's session, as session.Runner does.
type Call func(ctx context.Context, fn func(context.Context, fleetv1.AgentServiceClient) error) error

// Store is the part of the agent's memory that the services use.
type Store interface {
	sitesync.Store
	lease.Store
}

// ServiceConfig describes a Service.
type ServiceConfig struct {
	// Interfaces are the network devices that may be served. The controller names the segments; on any other device it
	// gets none.
	Interfaces []string
	// TFTPDir has boot programs that go before those of the distribution's iPXE; may be empty.
	TFTPDir    string
	CacheDir   string
	CacheBytes int64
	// HTTPPort is for segments that name none.
	HTTPPort int
	// MediaPort takes BMCs that fetch images over http, and the one behind it over https.
	MediaPort int
	// BMCs attach images, and MediaFile is where attached ones are remembered.
	BMCs      provider.VirtualMedia
	MediaFile string
	// Say puts a line into the log of an operation.
	Say  func(ctx context.Context, operationID, line string)
	Call Call
	// DialController is for the relay; nil means the network.
	DialController func(ctx context.Context, address string) (net.Conn, error)
	Store          Store
	// PhonedHome keeps what a system without the agent has said; it is durable when this returns nil.
	PhonedHome func(context.Context, httpboot.PhoneCall) error
	// Applied is called with the document by which the segments are served from now on; may be nil.
	Applied func(*fleetv1.SiteDocument)
	Clock   clock.Clock
	Log     *slog.Logger
	// Watch is how often leases and segments are looked at for reports.
	Watch time.Duration
}

// Service serves the segments of a site. It goes on without the controller.
type Service struct {
	cfg     ServiceConfig
	cache   *cache.Cache
	reports *sitesync.Reports
	loop    *sitesync.Loop
	prober  *probe.Prober
	// images and keeper are nil where no BMC can attach images.
	images *media.Server
	keeper *media.Keeper

	mu       sync.Mutex
	group    *task.Group
	segments map[string]*segmentServer
	refused  map[string]string
}

// NewService opens the cache. Run must be called.
func NewService(cfg ServiceConfig) (*Service, error) {
	if cfg.HTTPPort == 0 {
		cfg.HTTPPort = defaultHTTPPort
	}
	if cfg.Watch == 0 {
		cfg.Watch = 2 * time.Second
	}
	s := &Service{cfg: cfg, reports: sitesync.NewReports(), segments: map[string]*segmentServer{}}
	s.prober = s.newProber()
	var err error
	s.cache, err = cache.New(cache.Config{
		Dir: cfg.CacheDir, MaxBytes: cfg.CacheBytes, Source: blobSource(cfg.Call), Clock: cfg.Clock, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := s.setUpMedia(); err != nil {
		return nil, errors.Join(err, s.cache.Close())
	}
	s.loop = sitesync.New(sitesync.Config{
		Call: cfg.Call, Apply: s.apply, Store: cfg.Store, Reports: s.reports, Clock: cfg.Clock, Log: cfg.Log,
	})
	return s, nil
}

// Reports is where others put what they have seen.
func (s *Service) Reports() *sitesync.Reports { return s.reports }

// OpenBlob returns a file of the controller's by its SHA-256, through the cache.
func (s *Service) OpenBlob(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	b, err := s.cache.Open(ctx, sha256)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return b, nil
}

// Run serves until ctx ends: first by the stored document, then by those of the controller. orders ends earlier, when
// the agent may no longer act on the controller's orders; the segments are served on.
func (s *Service) Run(ctx, orders context.Context) (err error) {
	defer func() { err = errors.Join(err, s.cache.Close()) }()
	group, ctx := task.New(ctx)
	s.mu.Lock()
	s.group = group
	s.mu.Unlock()
	if err := s.loop.Start(ctx); err != nil {
		group.Go("start", func(context.Context) error { return err })
		return group.Wait()
	}
	group.Go("watch", s.watch)
	group.Go("probes", s.prober.Run)
	if s.keeper != nil {
		group.Go("images", s.keepImages)
		group.Go("media", func(ctx context.Context) error {
			both, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(orders, cancel)()
			return s.keeper.Run(both)
		})
	}
	group.Go("sync", func(ctx context.Context) error {
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(orders, cancel)()
		return s.loop.Run(both)
	})
	return group.Wait()
}

// apply makes the segments serve by a document. A segment that cannot be served doesn't keep the others from it: it is
// tried again until it can.
func (s *Service) apply(ctx context.Context, doc *fleetv1.SiteDocument) error {
	p := readDocument(doc, s.cfg.Interfaces, s.cfg.HTTPPort)
	for _, problem := range p.problems {
		s.cfg.Log.Error("part of the document left out", "revision", p.revision, "error", problem)
	}
	for name, why := range p.refused {
		s.cfg.Log.Error("segment not served", "segment", name, "error", why)
	}
	if err := s.replace(ctx, p); err != nil {
		return err
	}
	s.cache.Want(p.wanted)
	if s.keeper != nil {
		s.keeper.Set(doc.GetSite(), mediaBoots(p), targetsOf(p.bmcs))
	}
	s.prober.Replace(probeTargets(doc.GetProbes()))
	if s.cfg.Applied != nil {
		s.cfg.Applied(doc)
	}
	s.report()
	return nil
}

// replace stops segments that are gone or different, replaces the documents of the unchanged ones, and starts new ones.
func (s *Service) replace(ctx context.Context, p plan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = p.refused
	next := map[string]segmentPlan{}
	for _, sp := range p.segments {
		next[sp.segment.Name] = sp
	}
	for name, r := range s.segments {
		if sp, stays := next[name]; !stays || !r.fits(sp) {
			r.stop()
			delete(s.segments, name)
		}
	}
	var started []*segmentServer
	for name, sp := range next {
		if r := s.segments[name]; r != nil {
			if err := r.set(sp); err != nil {
				return err
			}
			continue
		}
		r, err := s.start(sp)
		if err != nil {
			return fmt.Errorf("segment %s: %w", name, err)
		}
		s.segments[name] = r
		started = append(started, r)
	}
	for _, r := range started {
		r.awaitUp(ctx)
	}
	return nil
}

// list returns the running segments.
func (s *Service) list() []*segmentServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*segmentServer
	for r := range maps.Values(s.segments) {
		out = append(out, r)
	}
	return out
}

// bootPrograms reads what PXE firmware loads first. A program that isn't there is missed only by machines that need it.
func (s *Service) bootPrograms() (map[string][]byte, error) {
	wanted := slices.Compact(slices.Sorted(maps.Values(dhcp.DefaultFiles())))
	files, missing := map[string][]byte{}, wanted
	if s.cfg.TFTPDir != "" {
		var err error
		if files, missing, err = tftp.Load(s.cfg.TFTPDir, wanted...); err != nil {
			return nil, err
		}
	}
	packaged, missing, err := tftp.Load(tftp.Debian, missing...)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		s.cfg.Log.Warn("no such boot program: machines that need it cannot boot by PXE", "files", missing, "looked_in",
			tftp.Debian)
	}
	maps.Copy(files, packaged)
	return files, nil
}
