package sync

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// repeatBMC is the time after which an unchanged observation of a BMC is reported again.
const repeatBMC = 5 * time.Minute

// maxUnknown bounds what strangers can make us remember while the controller is away.
const maxUnknown = 1024

// Reports collects what the controller is to know, until it knows. It is safe for concurrent use.
type Reports struct {
	mu sync.Mutex
	// leases and segments are the newest ones; sent is the hash of those that were answered last.
	leases    []*fleetv1.SiteLease
	segments  []*fleetv1.SegmentObservation
	now, sent hashes
	unknown   map[string]*fleetv1.UnknownMachine
	bmcs      map[string]*fleetv1.BMCObservation
	providers map[string]*fleetv1.ProviderObservation
	probes    map[string]*fleetv1.ProbeObservation
	// toldProbe is the last report on each machine without an agent.
	toldProbe map[string]*fleetv1.ProbeObservation
	// toldOf is the last report on each provider's machine.
	toldOf map[string]*fleetv1.ProviderObservation
	// told is the last report on each BMC.
	told map[string]*fleetv1.BMCObservation
	// hardware is the newest reading of each machine.
	hardware map[string]*fleetv1.HardwareReading
	boot     map[string]string
	// wake is called once when there is something pending.
	wake  func()
	pause time.Duration
	timer *time.Timer
}

// hashes are those of the lists of leases and segments.
type hashes struct{ leases, segments [sha256.Size]byte }

// NewReports makes an empty collection.
func NewReports() *Reports {
	return &Reports{
		unknown: map[string]*fleetv1.UnknownMachine{}, bmcs: map[string]*fleetv1.BMCObservation{},
		providers: map[string]*fleetv1.ProviderObservation{}, toldOf: map[string]*fleetv1.ProviderObservation{},
		told: map[string]*fleetv1.BMCObservation{}, boot: map[string]string{},
		probes: map[string]*fleetv1.ProbeObservation{}, toldProbe: map[string]*fleetv1.ProbeObservation{},
		hardware: map[string]*fleetv1.HardwareReading{},
	}
}

// Leases replaces the list of all leases.
func (r *Reports) Leases(list []*fleetv1.SiteLease) {
	sum := hashOf(list)
	r.change(func() { r.leases, r.now.leases = list, sum })
}

// Segments replaces the report of the segments.
func (r *Reports) Segments(list []*fleetv1.SegmentObservation) {
	sum := hashOf(list)
	r.change(func() { r.segments, r.now.segments = list, sum })
}

// BootAddresses replaces the addresses of the boot servers, by segment. They go with the next call.
func (r *Reports) BootAddresses(byName map[string]string) {
	r.change(func() { r.boot = maps.Clone(byName) })
}

// Unknown adds a machine that is in no inventory; of each only the last sighting counts.
func (r *Reports) Unknown(u *fleetv1.UnknownMachine) {
	r.change(func() {
		key := u.GetSegment() + " " + u.GetMacAddress()
		if _, known := r.unknown[key]; known || len(r.unknown) < maxUnknown {
			r.unknown[key] = u
		}
	})
}

// BMC adds what a BMC said; of each only the last word counts. An unchanged one is reported again once in a while.
func (r *Reports) BMC(o *fleetv1.BMCObservation) {
	r.change(func() {
		id := o.GetMachineId()
		if before := r.told[id]; r.bmcs[id] != nil || !sameWord(before, o) {
			r.bmcs[id] = o
		}
	})
}

// Hardware adds what a BMC said of a machine's hardware; of each only the last word counts.
func (r *Reports) Hardware(h *fleetv1.HardwareReading) {
	r.change(func() { r.hardware[h.GetMachineId()] = h })
}

// sameWord reports whether a BMC said the same not long ago.
func sameWord(before, o *fleetv1.BMCObservation) bool {
	if before == nil || o.GetSeenAt().AsTime().Sub(before.GetSeenAt().AsTime()) >= repeatBMC {
		return false
	}
	same := proto.Clone(o).(*fleetv1.BMCObservation)
	same.SeenAt = before.SeenAt
	return proto.Equal(before, same)
}

// Provider adds what a provider said of a machine; of each only the last word counts. An unchanged one is reported
// again once in a while.
func (r *Reports) Provider(o *fleetv1.ProviderObservation) {
	r.change(func() {
		id := o.GetMachineId()
		if before := r.toldOf[id]; r.providers[id] != nil || !sameSaying(before, o) {
			r.providers[id] = o
		}
	})
}

func sameSaying(before, o *fleetv1.ProviderObservation) bool {
	if before == nil || o.GetSeenAt().AsTime().Sub(before.GetSeenAt().AsTime()) >= repeatBMC {
		return false
	}
	same := proto.Clone(o).(*fleetv1.ProviderObservation)
	same.SeenAt = before.SeenAt
	return proto.Equal(before, same)
}

// Repeat has the next word of each BMC, provider and machine reported, also where it is the same as before: while the
// agent was away, the controller may have stopped to count on it.
func (r *Reports) Repeat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.told)
	clear(r.toldOf)
	clear(r.toldProbe)
}

func (r *Reports) change(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
	r.arm()
}

// arm sees to it that wake is called. The caller holds r.mu.
func (r *Reports) arm() {
	if r.wake == nil || r.timer != nil || !r.isPending() {
		return
	}
	r.timer = time.AfterFunc(r.pause, r.wake)
}

// onPending calls fn once there is something to report for as long as pause, until the returned function is called.
func (r *Reports) onPending(pause time.Duration, fn func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake, r.pause = fn, pause
	r.arm()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.timer != nil {
			r.timer.Stop()
		}
		r.wake, r.timer = nil, nil
	}
}

func (r *Reports) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isPending()
}

func (r *Reports) isPending() bool {
	return len(r.unknown) > 0 || len(r.bmcs) > 0 || len(r.providers) > 0 || len(r.probes) > 0 ||
		len(r.hardware) > 0 || r.now != r.sent
}

// batch is what one call carries.
type batch struct {
	req *fleetv1.SyncSiteRequest
	// before is what counted as told before it.
	before  hashes
	pending bool
}

// take returns all that is pending. It counts as told unless it is given back.
func (r *Reports) take() batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := batch{before: r.sent, pending: r.isPending(), req: &fleetv1.SyncSiteRequest{BootAddresses: maps.Clone(r.boot)}}
	if r.now.leases != r.sent.leases {
		b.req.Leases, b.req.LeasesChanged = r.leases, true
	}
	if r.now.segments != r.sent.segments {
		b.req.Segments = r.segments
	}
	b.req.Unknown = slices.Collect(maps.Values(r.unknown))
	b.req.Bmcs = slices.Collect(maps.Values(r.bmcs))
	r.sent = r.now
	maps.Copy(r.told, r.bmcs)
	b.req.Providers = slices.Collect(maps.Values(r.providers))
	maps.Copy(r.toldOf, r.providers)
	b.req.Probes = slices.Collect(maps.Values(r.probes))
	maps.Copy(r.toldProbe, r.probes)
	b.req.Hardware = slices.Collect(maps.Values(r.hardware))
	clear(r.hardware)
	clear(r.probes)
	clear(r.providers)
	clear(r.unknown)
	clear(r.bmcs)
	return b
}

// giveBack makes what was not answered pending again; newer words of the same stay.
func (r *Reports) giveBack(b batch) {
	r.change(func() {
		r.sent = b.before
		for _, u := range b.req.GetUnknown() {
			key := u.GetSegment() + " " + u.GetMacAddress()
			if r.unknown[key] == nil {
				r.unknown[key] = u
			}
		}
		for _, o := range b.req.GetBmcs() {
			delete(r.told, o.GetMachineId())
			if r.bmcs[o.GetMachineId()] == nil {
				r.bmcs[o.GetMachineId()] = o
			}
		}
		for _, o := range b.req.GetProbes() {
			delete(r.toldProbe, o.GetMachineId())
			if r.probes[o.GetMachineId()] == nil {
				r.probes[o.GetMachineId()] = o
			}
		}
		for _, h := range b.req.GetHardware() {
			if r.hardware[h.GetMachineId()] == nil {
				r.hardware[h.GetMachineId()] = h
			}
		}
		for _, o := range b.req.GetProviders() {
			delete(r.toldOf, o.GetMachineId())
			if r.providers[o.GetMachineId()] == nil {
				r.providers[o.GetMachineId()] = o
			}
		}
	})
}

// Probe adds whether a machine without an agent answers; of each only the last word counts. An unchanged one is
// reported again once in a while.
func (r *Reports) Probe(o *fleetv1.ProbeObservation) {
	r.change(func() {
		id := o.GetMachineId()
		before := r.toldProbe[id]
		same := before != nil && o.GetSeenAt().AsTime().Sub(before.GetSeenAt().AsTime()) < repeatBMC &&
			before.GetAnswers() == o.GetAnswers() && before.GetAddress() == o.GetAddress()
		if r.probes[id] != nil || !same {
			r.probes[id] = o
		}
	})
}

// hashOf is the zero hash for an empty list: nothing is said about nothing. It doesn't depend on the order.
func hashOf[M proto.Message](list []M) (sum [sha256.Size]byte) {
	if len(list) == 0 {
		return sum
	}
	var parts []string
	for _, m := range list {
		// Deterministic within one binary, which is all that is compared. Messages of ours always marshal.
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		parts = append(parts, string(b))
	}
	slices.Sort(parts)
	return sha256.Sum256([]byte(strings.Join(parts, "\x00")))
}
