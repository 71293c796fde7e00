package disks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
)

const token = "one-time token of this operation"

// install is one repave.
type install struct {
	*machine
	src       *source
	rule      rule
	protected []rule
	target    *unit // the disk that the rule was drawn for
	fault     string
	late      *unit
	patience  disks.Patience

	cancel    context.CancelCauseFunc
	intent    json.RawMessage
	committed bool
	chosen    []*unit // what the rule meant when the disk had been chosen
	atBegin   func()
	killed    bool
	mu        sync.Mutex
	lines     []string
}

func (m *machine) newInstall() *install {
	in := &install{machine: m}
	m.draw(80 << 20)
	in.target = one(m.r, m.units...)
	in.src = drawSource(m.r, in.target.SectorSize)
	if m.r.IntN(3) == 0 && in.src.fault == "" {
		in.src.spoil(m.r)
	}
	in.rule = m.ruleFor(in.target)
	if m.r.IntN(6) == 0 {
		u := one(m.r, m.units...)
		if p := m.ruleFor(u); p.key != "" {
			in.protected = append(in.protected, p)
		}
	}
	return in
}

// host is the agent's host of one life of the process.
func (in *install) host() *host.Linux {
	return host.New(host.Config{
		Root: in.bus.Root, Installer: true, StateTemplate: "template", HTTP: &http.Client{Transport: in.src},
		Disks: in.patience,
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)),
		OpenDisk: func(path string, write bool) (disks.Disk, error) {
			if in.loops != nil {
				return in.loops.open(in.machine, path, write)
			}
			h, err := in.bus.Open(path, write)
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	})
}

func (in *install) executor() *repave.Disk {
	return repave.NewDisk(repave.DiskConfig{
		Installer: in.host(), Site: "http://site", Clock: clock.Real(),
		Identity: func(context.Context, *fleetv1.CommandSpec) (disks.NextSystem, error) {
			return disks.NextSystem{Files: map[string][]byte{"bootstrap-token": []byte(token)}}, nil
		},
	})
}

func (in *install) job(ctx context.Context, spec *fleetv1.CommandSpec) executor.Job {
	return executor.Job{
		Spec: spec, Intent: in.intent, Hard: ctx, Progress: func(int, string) {},
		Logf: func(f string, a ...any) { // of several disks at once
			in.mu.Lock()
			defer in.mu.Unlock()
			in.lines = append(in.lines, fmt.Sprintf(f, a...))
		},
		Leave: func(context.Context) (*executor.Result, error) {
			if in.atBegin != nil {
				in.atBegin()
			}
			return nil, nil
		},
		UpdateIntent: func(_ context.Context, v any) (err error) {
			if in.killed {
				return disktest.ErrKilled
			}
			in.committed = true
			in.intent, err = json.Marshal(v)
			return err
		},
	}
}

// run executes the order, through a kill where there is one, and returns the result. said is false where there is none.
func (in *install) run() (res executor.Result, said bool) {
	ctx, cancel := context.WithCancelCause(in.t.Context())
	defer cancel(nil)
	in.cancel = cancel
	spec := &fleetv1.CommandSpec{CommandId: "c",
		Action: &fleetv1.CommandSpec_Repave{Repave: in.src.order(in.rule, in.protected)}}
	for _, u := range in.units {
		if u != in.late {
			in.attach(u)
		}
	}
	if in.late != nil {
		attached := make(chan struct{})
		timer := time.AfterFunc(50*time.Millisecond, func() {
			defer close(attached)
			if err := in.plug(in.late); err != nil {
				in.t.Error(err)
			}
		})
		defer func() {
			if !timer.Stop() {
				<-attached
			}
		}()
	}
	exec := in.executor()
	intent, settled, err := exec.Prepare(ctx, spec)
	in.chosen = in.meant(in.rule, in.protected)
	in.must(err)
	if settled != nil {
		return *settled, true
	}
	in.intent, err = json.Marshal(intent)
	in.must(err)
	if in.fault == "swap after the choice" {
		in.swap()
	}
	res, err = exec.Execute(ctx, in.job(ctx, spec))
	if !in.killed {
		if err != nil {
			in.t.Errorf("execute: %v", err)
		}
		return res, err == nil
	}
	in.bus.Restart()
	if in.fault == "power" {
		for _, u := range in.units {
			u.LosePower()
		}
		return executor.Result{}, false // another boot: no agent resumes
	}
	in.killed = false
	v, err := in.executor().Resume(in.t.Context(), in.job(in.t.Context(), spec))
	if err != nil || v.Settled == nil {
		return executor.Result{}, false
	}
	return *v.Settled, true
}

// swap puts another disk under the name of the target, or exchanges the names of two.
func (in *install) swap() {
	u := in.target
	present := in.bus.Present()
	name := u.names[0]
	if present[name] != u.Unit {
		return
	}
	if in.loops != nil {
		in.loops.swap(in.machine, u)
		return
	}
	in.must(in.bus.Detach(name))
	others := slices.DeleteFunc(slices.Clone(in.units),
		func(o *unit) bool { return o == u || present[o.names[0]] != o.Unit })
	if len(others) > 0 && in.r.IntN(2) == 0 {
		o := one(in.r, others...)
		in.must(in.bus.Detach(o.names[0]))
		u.names[0], o.names[0] = o.names[0], u.names[0]
		in.must(in.bus.Attach(u.names[0], u.Unit))
		in.must(in.bus.Attach(o.names[0], o.Unit))
		return
	}
	o := in.spare(u)
	o.names, u.names[0] = []string{name}, "taken-out"
	in.must(in.bus.Attach(name, o.Unit))
}

// spare makes a new disk of the same make and size. It may not show who it is.
func (m *machine) spare(u *unit) *unit {
	o := &unit{label: "spare", Unit: &disktest.Unit{Disk: disktest.New(u.Size()), Model: u.Model,
		Serial: one(m.r, "", "SPARE", u.Serial)}}
	o.SectorSize = u.SectorSize
	if u.WWN != "" && m.r.IntN(2) == 0 {
		o.WWN = strings.TrimRight(u.WWN, "0123456789abcdef") + "00aabbccddee0011"
	}
	m.fillOld(o)
	m.honesty(o)
	m.units = append(m.units, o)
	return o
}

// drawFault draws what goes wrong beside the stream.
func (in *install) drawFault() {
	r, u := in.r, in.target
	n := 0
	when := one(r, r.IntN(3), r.IntN(12), r.IntN(60))
	kinds := []string{"", "", "late", "swap after the choice", "swap at the opening", "swap at the first write",
		"write error",
		"passing write error", "changed write", "read error", "flush error", "discard error", "cancel", "kill", "kill",
		"kill", "power", "power",
		"power", "removed"}
	if in.loops != nil { // the kernel takes nothing away that is open, and keeps its disks
		kinds = []string{"", "", "swap after the choice", "swap at the opening", "write error", "passing write error",
			"changed write", "read error",
			"flush error", "cancel", "kill", "kill", "kill"}
	}
	place := one(r, 0, u.Size()-1, r.Int64N(16<<20), r.Int64N(u.Size()))
	hit := func(b []byte, off int64) bool {
		if off <= place && place < off+int64(len(b)) {
			n++
			return n > when%3
		}
		return false
	}
	whole := func(b []byte, _ int64) (int, error) { return len(b), nil }
	switch in.fault = one(r, kinds...); in.fault {
	case "late":
		in.late = one(r, in.units...)
		in.patience = disks.Patience{Late: 900 * time.Millisecond, Settle: 500 * time.Millisecond}
	case "swap at the opening":
		once := false
		in.bus.OnOpen = func(string) {
			if !once {
				once = true
				in.swap()
			}
		}
	case "swap at the first write":
		in.atBegin = in.swap
	case "removed":
		u.OnWrite = func(b []byte, off int64) (int, error) {
			if n++; n == when+1 && u.names[0] != "taken-out" {
				in.must(in.bus.Detach(u.names[0]))
				u.names[0] = "taken-out"
			}
			return whole(b, off)
		}
	case "write error", "passing write error":
		passing := in.fault != "write error"
		u.OnWrite = func(b []byte, off int64) (int, error) {
			if hit(b, off) && (!passing || n == when%3+1) {
				return 0, disktest.ErrIO
			}
			return whole(b, off)
		}
	case "changed write":
		u.OnWrite = func(b []byte, off int64) (int, error) {
			// The file system of the state partition is read back elsewhere: see disktest.Handle.Part.
			if hit(b, off) && (off < int64(len(in.src.raw)) || off >= u.Size()-1<<20) {
				b[r.IntN(len(b))] ^= 0xff
			}
			return whole(b, off)
		}
	case "read error":
		u.OnRead = func(b []byte, off int64) error {
			if hit(b, off) {
				return disktest.ErrIO
			}
			return nil
		}
	case "flush error":
		u.OnFlush = func() error {
			if n++; n > when%8 {
				return disktest.ErrIO
			}
			return nil
		}
	case "discard error":
		u.OnDiscard = func(int64, int64) error { return disktest.ErrIO }
	case "cancel":
		u.OnWrite = func(b []byte, off int64) (int, error) {
			if n++; n > when {
				in.cancel(executor.ErrCanceled)
			}
			return whole(b, off)
		}
	case "kill", "power":
		in.drawKill(when)
	}
}

// drawKill ends the process at some operation on the target, or at one of those that make it bootable.
func (in *install) drawKill(when int) {
	r, u := in.r, in.target
	n := 0
	if r.IntN(2) == 0 {
		when = -1 - r.IntN(7) // counted from the commit on
	}
	u.Kept = one(r, disktest.KeepNone, disktest.KeepAll, disktest.KeepSome, disktest.KeepSome)
	now := func() bool {
		if when >= 0 || in.committed {
			n++
		}
		return n > max(when, -when-1)
	}
	die := func() {
		in.killed = true
		in.bus.Kill()
	}
	u.OnWrite = func(b []byte, _ int64) (int, error) {
		if !in.killed && now() {
			die()
			part := r.IntN(len(b)/u.SectorSize+1) * u.SectorSize
			return part, disktest.ErrKilled
		}
		return len(b), nil
	}
	u.OnFlush = func() error {
		if !in.killed && now() {
			die()
			return disktest.ErrKilled
		}
		return nil
	}
}

// judge compares the result with every byte of every disk.
func (in *install) judge(res executor.Result, said bool) string {
	done := said && res.Outcome == fleetv1.CommandResult_SUCCEEDED
	var changed []*unit
	for _, u := range in.units {
		if at, same := u.SameAs(u.before); !same {
			changed = append(changed, u)
			if len(in.chosen) != 1 || in.chosen[0] != u {
				in.t.Errorf("%s was changed at %d, and the rule %q meant %s", u.label, at, in.rule, labels(in.chosen))
			}
		}
	}
	if done && len(changed) != 1 {
		in.t.Errorf("done, and %s are changed", labels(changed))
	}
	for _, u := range changed {
		in.judgeDisk(u, u.Cached, res, said)
		in.judgeDisk(u, u.Durable, res, said)
		if done {
			in.judgeDone(u, res)
		}
		if done && in.r.IntN(2) == 0 { // it stays so without power
			u.Kept = disktest.KeepNone
			u.LosePower()
			in.judgeDone(u, res)
		}
	}
	if len(changed) == 0 && said && strings.Contains(res.Message, "; disk ") &&
		!strings.Contains(res.Message, image.LeftAsItWas.String()) &&
		!strings.Contains(res.Message, "not looked at") && !strings.Contains(res.Message, image.LeftUnknown.String()) {
		in.t.Errorf("nothing was changed, and it is said: %s", res.Message)
	}
	switch {
	case !said:
		return "nothing said"
	case done:
		return "done"
	}
	return res.Reason.String()
}

func labels(us []*unit) string {
	var out []string
	for _, u := range us {
		out = append(out, u.label)
	}
	return "[" + strings.Join(out, " ") + "]"
}

// tableEnd is behind the primary table, whatever the sectors are: the parts of the image before it are written last.
const tableEnd = 24 << 10

// judgeDisk checks that a disk with a table has all of the image, and that the result is true of it.
func (in *install) judgeDisk(u *unit, v view, res executor.Result, said bool) {
	tables := tablesOf(v, u.Size())
	message := ""
	if said {
		message = res.Message
	}
	for _, f := range tables {
		ours := f.where == "MBR" || u.old == nil || f.disk != u.old.disk
		if ours && !bytes.Equal(v.get(tableEnd, int64(len(in.src.raw))-tableEnd), in.src.raw[tableEnd:]) &&
			!in.oldMBR(u, v, f) {
			in.t.Errorf("%s has a table (%s) and not the whole image; said was %t %s", u.label, f.where, said, message)
		}
		if ours && !in.committed && !in.oldMBR(u, v, f) {
			in.t.Errorf("%s has a table (%s), and nobody was told before; said was %t %s", u.label, f.where, said, message)
		}
	}
	if len(tables) > 0 && strings.Contains(message, "does not boot") {
		in.t.Errorf("%s has a table (%s): %s", u.label, tables[0].where, message)
	}
	if strings.Contains(message, "was not changed") {
		in.t.Errorf("%s was changed: %s", u.label, message)
	}
	stated := strings.Contains(message, "may hold a partition table") || strings.Contains(message, "not looked at") ||
		strings.Contains(message, "holds something else")
	if said && res.Outcome != fleetv1.CommandResult_SUCCEEDED && len(tables) > 0 && !stated {
		in.t.Errorf("%s has a table (%s), the write has failed, and it is not said: %s", u.label, tables[0].where, message)
	}
}

// oldMBR reports whether an MBR is the one that was there before.
func (in *install) oldMBR(u *unit, v view, f found) bool {
	return f.where == "MBR" && u.old != nil && bytes.Equal(v.get(0, 512), view(u.before.Durable).get(0, 512))
}

// judgeDone reads the whole disk.
func (in *install) judgeDone(u *unit, res executor.Result) {
	v := view(u.Cached)
	raw := in.src.raw
	if !bytes.Equal(v.get(tableEnd, int64(len(raw))-tableEnd), raw[tableEnd:]) || !bytes.Equal(v.get(0, 440), raw[:440]) {
		in.t.Errorf("%s is said to be written, and does not hold the image", u.label)
	}
	if res.Evidence[evidence.ImageDigest] != in.src.digest() || res.Evidence["bytes"] != fmt.Sprint(len(raw)) {
		in.t.Errorf("evidence %v", res.Evidence)
	}
	tables := slices.DeleteFunc(tablesOf(v, u.Size()), func(f found) bool { return f.where == "MBR" })
	if len(tables) != 2 {
		in.t.Errorf("%s has the tables %+v", u.label, tables)
		return
	}
	for _, f := range tables {
		if f.disk != in.src.table.disk || len(f.parts) != len(in.src.table.parts)+1 ||
			!slices.Equal(f.parts[:len(f.parts)-1], in.src.table.parts) {
			in.t.Errorf("%s: the %s table has %+v", u.label, f.where, f.parts)
			continue
		}
		state := f.parts[len(f.parts)-1]
		if state.name != image.StateName || !bytes.Contains(v.get(state.off, state.len), []byte(token)) {
			in.t.Errorf("%s: the %s table has %+v, and there is no token there", u.label, f.where, state)
		}
	}
}

// mustSucceed reports whether nothing speaks against the order.
func (in *install) mustSucceed() bool {
	u := in.target
	if in.fault != "" || !in.src.good || len(in.chosen) != 1 || in.chosen[0] != u || u.ZeroLie && !u.NoZero &&
		!u.NoDiscard {
		return false
	}
	if in.src.table.sector != u.SectorSize {
		return false
	}
	return !slices.ContainsFunc(in.units, func(o *unit) bool { return o != u && o.Serial == u.Serial && o.Serial != "" })
}
