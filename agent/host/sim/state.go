package sim

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
)

// MachineState is how a simulated machine is now.
type MachineState struct {
	MachineID   string         `json:"machine_id"`
	On          bool           `json:"on"`
	ClaimedOn   *bool          `json:"claimed_on,omitempty"` // what a lying BMC shows instead
	BootID      string         `json:"boot_id"`
	BootedFrom  string         `json:"booted_from"` // disk, or the target of the one-shot entry
	BootedImage host.DiskImage `json:"booted_image"`
	OSMachineID string         `json:"os_machine_id"`
	Hostname    string         `json:"hostname"`
	BootNext    boot.NextState `json:"boot_next"`
	Firewall    firewall.State `json:"firewall"`
	// Network is what Ingot has configured; it lasts over reboots.
	Network *network.Config `json:"network,omitempty"`
	Disk    host.DiskImage  `json:"disk"`
	// Downs counts how often the machine has stopped all its processes.
	Downs int `json:"downs"`

	Asked   map[Kind]int   `json:"asked"`
	Seq     uint64         `json:"seq"`
	Pending []pending      `json:"pending,omitempty"`
	Outbox  []EffectRecord `json:"outbox,omitempty"` // owed to the journal

	fresh bool // made in memory, not on disk yet
}

// pending is an effect that was accepted and happens later.
type pending struct {
	Due    time.Time `json:"due"`
	Change change    `json:"change"`
}

// change is one effect as dataon the machine.
type change struct {
	Kind     Kind            `json:"kind"`
	Effect   effect.Cause    `json:"effect"`
	Fault    Mode            `json:"fault,omitempty"`
	Hostname string          `json:"hostname,omitempty"`
	BootNext boot.NextState  `json:"boot_next,omitzero"`
	Firewall firewall.State  `json:"firewall,omitzero"`
	Network  *network.Config `json:"network,omitempty"`
	Image    host.DiskImage  `json:"image,omitzero"`
	Detail   string          `json:"detail,omitempty"`
}

func newMachine(id string) MachineState {
	return MachineState{
		MachineID: id, On: true, BootID: newUUID(), BootedFrom: "disk", Hostname: id,
		OSMachineID: hexID(), Disk: host.DiskImage{Disk: diskSerial(id)},
		BootedImage: host.DiskImage{Disk: diskSerial(id)}, Asked: map[Kind]int{}, fresh: true,
	}
}

// apply makes the change happen. It is the only place where a simulated machine changes.
func (st *MachineState) apply(c change) {
	switch c.Kind {
	case KindReboot:
		st.stop()
		st.boot()
	case KindPowerOff:
		st.stop()
		st.On, st.ClaimedOn = false, nil
	case KindPowerOn:
		st.On, st.ClaimedOn = true, nil
		st.boot()
	case KindHostname:
		st.Hostname = c.Hostname
	case KindBootNext:
		st.BootNext = c.BootNext
	case KindBootNextClear:
		st.BootNext = boot.NextState{}
	case KindFirewall:
		st.Firewall = c.Firewall
	case KindFirewallRemove:
		st.Firewall = firewall.State{}
	case KindNetwork:
		st.Network = c.Network
	case KindRepave:
		st.Disk = c.Image
	case KindErase:
		st.Disk = host.DiskImage{Disk: st.Disk.Disk}
	}
}

// lie makes the machine claim the change.
func (st *MachineState) lie(c change) {
	switch c.Kind {
	case KindReboot:
		st.Downs++ // the agent is started again, the kernel is not
	case KindPowerOff, KindPowerOn:
		on := c.Kind == KindPowerOn
		st.ClaimedOn = &on
	}
}

func (st *MachineState) stop() {
	st.Downs++
	st.BootID = ""
	st.Firewall = firewall.State{} // the kernel's, gone with it
}

func (st *MachineState) boot() {
	st.BootID = newUUID()
	st.BootedFrom = "disk"
	if st.BootNext.Set {
		st.BootedFrom = st.BootNext.Target
		st.BootNext = boot.NextState{}
	}
	if st.Disk != st.BootedImage {
		st.BootedImage = st.Disk
		st.OSMachineID = hexID() // a new system makes its own at first boot
		st.Network = nil
	}
}

// record writes the change down as owed to the journal.
func (st *MachineState) record(now time.Time, stage Stage, c change) {
	st.Seq++
	st.Outbox = append(st.Outbox, EffectRecord{
		At: now.UTC(), MachineID: st.MachineID, Seq: st.Seq, Stage: stage, Kind: c.Kind,
		CommandID: c.Effect.CommandID, OperationID: c.Effect.OperationID, Target: c.Effect.MachineID,
		Attempt: c.Effect.Attempt, Fault: c.Fault, BootID: st.BootID, Detail: c.Detail,
	})
}

// happen applies the change, or its lie, and records it.
func (st *MachineState) happen(now time.Time, c change) {
	if c.Kind == KindReboot && !st.On {
		st.record(now, StageDropped, c)
		return
	}
	if c.Fault == Lie {
		st.lie(c)
		st.record(now, StageLied, c)
		return
	}
	st.apply(c)
	st.record(now, StageEffect, c)
}

// settle lets everything happen that is due, in the order of its time.
func (st *MachineState) settle(now time.Time) {
	slices.SortStableFunc(st.Pending, func(a, b pending) int { return a.Due.Compare(b.Due) })
	for len(st.Pending) > 0 && !st.Pending[0].Due.After(now) {
		p := st.Pending[0]
		st.Pending = st.Pending[1:]
		st.happen(p.Due, p.Change)
	}
}

func stateFile(dir, id string) string {
	return filepath.Join(dir, "machines", url.PathEscape(id)+".json")
}

func machineFiles(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "machines", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list machines of the world: %w", err)
	}
	return paths, nil
}

// readState returns the state and whether there was one.
func readState(path string) (MachineState, bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return MachineState{}, false, nil
	}
	if err != nil {
		return MachineState{}, false, fmt.Errorf("read simulated machine: %w", err)
	}
	var st MachineState
	if err := json.Unmarshal(b, &st); err != nil {
		return MachineState{}, false, fmt.Errorf("read simulated machine %s: %w", path, err)
	}
	return st, true, nil
}

func encode(st MachineState) []byte {
	b, err := json.Marshal(st)
	if err != nil {
		// Only strings, numbers, bools and times between the years 0 and 9999, which always encode.
		panic(fmt.Sprintf("encode simulated machine: %v", err))
	}
	return b
}

func writeState(path string, st MachineState) error {
	// One writer at a time holds the machine's lock, so one temporary name is enough.
	tmp := path + ".new"
	if err := os.WriteFile(tmp, encode(st), 0o644); err != nil {
		return fmt.Errorf("write simulated machine: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("replace simulated machine: %w", err)
	}
	return nil
}

// lock takes the machine's lock, against other processes and other callers in this one.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock of simulated machine: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock simulated machine: %w", err), f.Close())
	}
	return f.Close, nil // closing the only descriptor releases the lock
}

func newUUID() string {
	b := randomBytes()
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func hexID() string { return fmt.Sprintf("%x", randomBytes()) }

func randomBytes() []byte {
	b := make([]byte, 16)
	// crypto/rand.Read never fails: it ends the process if the kernel has no entropy for it.
	_, _ = rand.Read(b)
	return b
}
