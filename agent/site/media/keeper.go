package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// KeeperConfig is what a Keeper needs.
type KeeperConfig struct {
	// Path is the file in which attached images are remembered. It holds no secret.
	Path   string
	BMCs   provider.VirtualMedia
	Server *Server
	// Say puts a line into the log of an operation.
	Say   func(ctx context.Context, operationID, line string)
	Clock clock.Clock
	Log   *slog.Logger
	// Every is the time between two rounds; 0 means 5 s. A BMC that has failed is left alone for as many rounds as it has
	// failed, up to 60.
	Every time.Duration
}

// Record is the durable state of an image that may be attached.
type Record struct {
	Site, MachineID, OperationID string
	// Assignment identifies the one that the image was made for.
	Assignment string
	Target     provider.Target
	At         time.Time
	// Used is set when its installer was certified.
	Used bool
}

// Keeper attaches and ejects.
type Keeper struct {
	cfg  KeeperConfig
	wake chan struct{}

	mu      sync.Mutex
	site    string
	boots   map[string]Boot // by machine
	targets map[string]provider.Target
	records map[string]Record
	// busy are the machines to which an image is being attached.
	busy map[string]bool
	// looked are the machines of which the drives have been read since the start, tries those that failed.
	looked map[string]bool
	tries  map[string]int
	rests  map[string]int
}

// NewKeeper returns a Keeper with the stored records.
func NewKeeper(cfg KeeperConfig) (*Keeper, error) {
	if cfg.Every == 0 {
		cfg.Every = 5 * time.Second
	}
	k := &Keeper{
		cfg: cfg, wake: make(chan struct{}, 1), records: map[string]Record{}, busy: map[string]bool{},
		looked: map[string]bool{}, tries: map[string]int{}, rests: map[string]int{},
	}
	data, err := os.ReadFile(cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &k.records)
	}
	if err != nil {
		return nil, fmt.Errorf("read which images are attached: %w", err)
	}
	return k, nil
}

// Set replaces the machines that start from images now, and their BMCs.
func (k *Keeper) Set(site string, boots []Boot, targets []provider.Target) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.site, k.boots, k.targets = site, map[string]Boot{}, map[string]provider.Target{}
	for _, b := range boots {
		k.boots[b.MachineID] = b
	}
	for _, t := range targets {
		k.targets[t.MachineID] = t
	}
	k.serve()
	k.nudge()
}

func (k *Keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// serve sets the server's images: those that are still needed. The caller holds the lock.
func (k *Keeper) serve() {
	byName := map[string]Boot{}
	for id, b := range k.boots {
		if r, ok := k.records[id]; ok && r.Assignment == b.assignment() && r.Used {
			continue
		}
		byName[b.name(k.site)] = b
	}
	k.cfg.Server.Set(byName)
}

// assignment returns an identifier of the assignment without its token.
func (b Boot) assignment() string {
	sum := sha256.Sum256([]byte(b.Token))
	return hex.EncodeToString(sum[:8])
}

// wanted reports whether the record's image is to stay. The caller holds the lock.
func (k *Keeper) wanted(r Record) bool {
	b, ok := k.boots[r.MachineID]
	return ok && b.assignment() == r.Assignment && !r.Used
}

// change stores the records after fn. The caller holds the lock.
func (k *Keeper) change(fn func(map[string]Record)) error {
	next := maps.Clone(k.records)
	fn(next)
	data, err := json.MarshalIndent(next, "", " ")
	if err == nil {
		err = pki.WriteFile(k.cfg.Path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("remember which images are attached: %w", err)
	}
	k.records = next
	return nil
}

// Insert attaches the image of the machine's assignment, and returns when it was read back.
func (k *Keeper) Insert(ctx context.Context, t provider.Target, e effect.Cause) (provider.MediaProof, error) {
	b, site, err := k.begin(t)
	if err != nil {
		return provider.MediaProof{}, err
	}
	defer k.end(t.MachineID)
	urls, err := k.cfg.Server.urls(ctx, t.BMCEndpoint, b.name(site))
	if err != nil {
		return provider.MediaProof{}, err
	}
	return k.cfg.BMCs.InsertMedia(ctx, t, e, provider.MediaOrder{
		URLs: urls, Ours: func(image string) bool { return Ours(site, t.MachineID, image) },
	})
}

// begin remembers the image before the BMC hears of it.
func (k *Keeper) begin(t provider.Target) (Boot, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.boots[t.MachineID]
	if !ok {
		return b, "", failure.Unavailable("EXECUTION_FAILED",
			"the site's document has no image for machine %s any more; nothing was attached", t.MachineID)
	}
	r := Record{Site: k.site, MachineID: t.MachineID, OperationID: b.OperationID, Assignment: b.assignment(), Target: t,
		At: k.cfg.Clock.Now()}
	if err := k.change(func(all map[string]Record) { all[t.MachineID] = r }); err != nil {
		return b, "", err
	}
	k.busy[t.MachineID] = true
	k.serve()
	return b, k.site, nil
}

func (k *Keeper) end(machineID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.busy, machineID)
	k.nudge()
}

// Used records that the installer that was started with a boot token is certified: the image is no longer needed.
func (k *Keeper) Used(machineID, token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.records[machineID]
	b, same := k.boots[machineID]
	if !ok || !same || b.Token != token || r.Assignment != b.assignment() {
		return
	}
	r.Used = true
	if err := k.change(func(all map[string]Record) { all[machineID] = r }); err != nil {
		k.cfg.Log.Error("image stays attached until the operation ends", "machine_id", machineID, "error", err)
	}
	k.serve()
	k.nudge()
}

// Run ejects until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := k.cfg.Clock.NewTicker(k.cfg.Every)
	defer tick.Stop()
	for {
		if err := k.round(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		case <-k.wake:
		}
	}
}

// atOnce is how many BMCs are spoken to at the same time.
const atOnce = 8

// round ejects the images that are due.
func (k *Keeper) round(ctx context.Context) error {
	group, _ := task.New(ctx)
	slots := make(chan struct{}, atOnce)
	for _, r := range k.due() {
		slots <- struct{}{}
		group.Go("eject", func(ctx context.Context) error {
			defer func() { <-slots }()
			k.eject(ctx, r)
			return nil
		})
	}
	return group.Wait()
}

// due returns the images that are no longer needed, and the machines whose drives were not read since the start.
func (k *Keeper) due() []Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Record
	take := func(r Record) {
		if k.rests[r.MachineID] > 0 {
			k.rests[r.MachineID]--
			return
		}
		out = append(out, r)
	}
	for id, r := range k.records {
		if !k.busy[id] && !k.wanted(r) {
			if t, ok := k.targets[id]; ok {
				r.Target = t // whose credentials may have changed
			}
			take(r)
		}
	}
	for id, t := range k.targets {
		_, known := k.records[id]
		_, boots := k.boots[id]
		if !known && !boots && !k.looked[id] && !k.busy[id] && t.BMCEndpoint != "" {
			take(Record{Site: k.site, MachineID: id, Target: t})
		}
	}
	return out
}

// eject removes our images from the drives, and deletes the record once the BMC shows the drives without them.
func (k *Keeper) eject(ctx context.Context, r Record) {
	n, err := k.cfg.BMCs.EjectMedia(ctx, r.Target, func(image string) bool { return Ours(r.Site, r.MachineID, image) })
	if err != nil && !errors.Is(err, effect.ErrUnsupported) {
		k.failed(ctx, r, err)
		return
	}
	k.mu.Lock()
	k.looked[r.MachineID] = true
	delete(k.tries, r.MachineID)
	delete(k.rests, r.MachineID)
	now, remembered := k.records[r.MachineID]
	if remembered && now.Assignment == r.Assignment && !k.busy[r.MachineID] {
		if err := k.change(func(all map[string]Record) { delete(all, r.MachineID) }); err != nil {
			k.cfg.Log.Error("ejected image stays remembered", "machine_id", r.MachineID, "error", err)
		}
	}
	k.mu.Unlock()
	if n > 0 {
		k.cfg.Log.Info("image ejected", "machine_id", r.MachineID, "operation_id", r.OperationID, "drives", n)
	}
	if n > 0 && r.OperationID != "" {
		k.cfg.Say(ctx, r.OperationID, "the image is ejected, and the BMC shows its drive empty")
	}
}

// restMost is how many rounds a BMC is left alone at most.
const restMost = 60

// failed leaves the BMC alone for a while.
func (k *Keeper) failed(ctx context.Context, r Record, err error) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	k.tries[r.MachineID]++
	n := k.tries[r.MachineID]
	k.rests[r.MachineID] = min(n, restMost)
	k.mu.Unlock()
	if r.OperationID == "" {
		k.cfg.Log.Debug("drives of a BMC not read", "machine_id", r.MachineID, "error", err)
		return
	}
	k.cfg.Log.Warn("image not ejected; trying again", "machine_id", r.MachineID, "operation_id", r.OperationID, "try", n,
		"error", err)
	if n == 1 {
		k.cfg.Say(ctx, r.OperationID, "the image is still attached, and the site's agent goes on to eject it: "+err.Error())
	}
}
