package disks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/executor"
	eraseexec "github.com/ingot-metal/ingot/agent/executor/erase"
	"github.com/ingot-metal/ingot/internal/clock"
)

// password is what an erasure of ours sets, which a lost attempt leaves.
const password = "ingot-erase"

// erasure is one erase command.
type erasure struct {
	*install // its disks, rule and protection; the image is not used
	method   erase.Method
	chosen   []*unit
	hidden   map[*unit]string
	lies     map[*unit]bool
	bad      map[*unit]bool
	fault    string
	spared   map[*unit]int64
}

func (m *machine) newErasure() *erasure {
	e := &erasure{install: &install{machine: m, src: &source{}}, hidden: map[*unit]string{}, lies: map[*unit]bool{},
		bad:    map[*unit]bool{},
		spared: map[*unit]int64{}}
	m.draw(64 << 20)
	r := m.r
	e.target = one(r, m.units...)
	e.method = one(r, erase.Auto, erase.Auto, erase.Auto, erase.Overwrite, erase.Discard, erase.ATASecure,
		erase.NVMeFormat, erase.NVMeSanitize)
	if r.IntN(2) == 0 {
		e.rule = m.ruleFor(e.target)
	}
	if r.IntN(3) == 0 {
		if p := m.ruleFor(one(r, m.units...)); p.key != "" {
			e.protected = append(e.protected, p)
		}
	}
	for _, u := range m.units {
		e.drawDevice(u)
	}
	e.fault = one(r, "", "", "swap after the choice", "swap at the opening", "cancel", "kill")
	return e
}

// drawDevice draws what the device's own erasure is worth.
func (e *erasure) drawDevice(u *unit) {
	r := e.r
	keep := r.Int64N(u.Size()) >> 16 << 16
	spare := func(off int64) bool { return off == keep }
	lie := r.IntN(4)
	switch {
	case u.ATADrive != nil:
		a := u.ATADrive
		e.lies[u] = lie == 0
		a.Lie = lie == 0
		if lie == 1 {
			a.Spare, e.spared[u] = spare, keep
		}
		a.FailErase, a.FailPassword, a.Keep, a.KeepDisabled = r.IntN(6) == 0, r.IntN(6) == 0, r.IntN(6) == 0, r.IntN(8) == 0
		switch r.IntN(4) {
		case 0:
			a.HPA = 1 + uint64(r.IntN(1<<20))
			e.hidden[u] = "HPA"
		case 1:
			a.DCO = 1 + uint64(r.IntN(1<<20))
			e.hidden[u] = "DCO"
		}
		switch r.IntN(5) {
		case 0:
			if a.Security&8 == 0 {
				a.Lock(one(r, password, "somebody's"))
			}
		case 1:
			a.HasSanitize, a.Sanitizing = true, 1+r.IntN(2)
		}
	case u.NVMeDrive != nil:
		n := u.NVMeDrive
		e.lies[u] = lie == 0
		n.Lie = lie == 0
		if lie == 1 {
			n.Spare, e.spared[u] = spare, keep
		}
		n.Fail = r.IntN(5) == 0
		if n.Sanicap != 0 && r.IntN(4) == 0 {
			n.Busy, n.Result = 1+r.IntN(2), one[uint16](r, 1, 3)
		}
		if r.IntN(4) == 0 {
			n.OACS, n.Free, n.Attached, n.Allocated = n.OACS|8, 1<<30, 1, 1
			e.hidden[u] = "belong to no namespace"
		}
	}
	e.drawBadSectors(u)
}

// drawBadSectors: sectors that cannot be read until they are written, and some that cannot be written.
func (e *erasure) drawBadSectors(u *unit) {
	r := e.r
	place := r.Int64N(u.Size())
	within := func(b []byte, off int64) bool { return off <= place && place < off+int64(len(b)) }
	switch r.IntN(8) {
	case 0:
		pending := true
		u.OnRead = func(b []byte, off int64) error {
			if pending && within(b, off) {
				return disktest.ErrIO
			}
			return nil
		}
		u.OnWrite = func(b []byte, off int64) (int, error) {
			pending = pending && !within(b, off)
			return len(b), nil
		}
	case 1:
		e.bad[u] = true
		u.OnWrite = func(b []byte, off int64) (int, error) {
			if within(b, off) {
				return 0, disktest.ErrIO
			}
			return len(b), nil
		}
	}
}

func (e *erasure) run() (res executor.Result, said bool) {
	for _, u := range e.units {
		e.attach(u)
	}
	exec := eraseexec.New(eraseexec.Config{Machine: e.host(), Clock: clock.Real()})
	ctx, cancel := context.WithCancelCause(e.t.Context())
	defer cancel(nil)
	action := &fleetv1.EraseAction{Method: string(e.method), DiskRule: e.rule.String()}
	for _, p := range e.protected {
		action.ProtectedDisks = append(action.ProtectedDisks, p.String())
	}
	spec := &fleetv1.CommandSpec{CommandId: "c", Action: &fleetv1.CommandSpec_Erase{Erase: action}}
	intent, settled, err := exec.Prepare(ctx, spec)
	e.must(err)
	e.chosen = e.meant(e.rule, e.protected)
	if settled != nil {
		return *settled, true
	}
	e.intent, err = json.Marshal(intent)
	e.must(err)
	e.drawStop(cancel)
	res, err = exec.Execute(ctx, e.job(ctx, spec))
	if !e.killed {
		return res, err == nil
	}
	e.bus.Restart()
	v, err := exec.Resume(e.t.Context(), e.job(e.t.Context(), spec))
	e.must(err)
	return *v.Settled, true
}

func (e *erasure) drawStop(cancel context.CancelCauseFunc) {
	n, when := 0, e.r.IntN(20)
	switch e.fault {
	case "swap after the choice":
		e.swap()
	case "swap at the opening":
		once := false
		e.bus.OnOpen = func(string) {
			if !once {
				once = true
				e.swap()
			}
		}
	case "cancel", "kill":
		before := e.target.OnWrite
		e.target.OnWrite = func(b []byte, off int64) (int, error) {
			if n++; n > when && e.fault == "cancel" {
				cancel(executor.ErrCanceled)
			} else if n > when {
				e.killed = true
				e.bus.Kill()
				return 0, disktest.ErrKilled
			}
			if before != nil {
				return before(b, off)
			}
			return len(b), nil
		}
	}
}

// judge compares the result with every byte of every disk.
func (e *erasure) judge(res executor.Result, said bool) string {
	done := said && res.Outcome == fleetv1.CommandResult_SUCCEEDED
	for _, u := range e.units {
		if at, same := u.SameAs(u.before); !same && !slices.Contains(e.chosen, u) {
			e.t.Errorf("%s was changed at %d, and the rule %q means %s", u.label, at, e.rule, labels(e.chosen))
		}
	}
	if e.rule.key != "" && len(e.chosen) != 1 && done {
		e.t.Errorf("the rule means %s, and it is done", labels(e.chosen))
	}
	for i := 0; said; i++ {
		prefix := fmt.Sprintf("disk_%d_", i)
		id, ok := res.Evidence[prefix+"id"]
		if !ok {
			break
		}
		e.judgeDisk(id, res.Evidence, prefix, done)
	}
	if done {
		for _, u := range e.chosen {
			if _, same := u.SameAs(u.before); same {
				e.t.Errorf("%s is said to be erased, and holds what it held", u.label)
			}
		}
		methods := strings.Split(res.Evidence["erase_method"], ",")
		slices.Sort(methods)
		return "done by " + strings.Join(slices.Compact(methods), ", ")
	}
	return res.Reason.String()
}

// judgeDisk compares the evidence of one disk.
func (e *erasure) judgeDisk(id string, ev map[string]string, prefix string, done bool) {
	var u *unit
	for _, o := range e.chosen {
		if name := firstOf(o.WWN, o.Serial, "/dev/"+o.names[0]); name == id && (u == nil || o.changed()) {
			u = o
		}
	}
	verification, erased := ev[prefix+"verification"]
	if u == nil || !erased {
		if erased && u == nil {
			e.t.Errorf("nobody knows the erased disk %s", id)
		}
		return
	}
	if e.twin(u) {
		return // evidence cannot say which of the two
	}
	if want := e.hidden[u]; want != "" && !strings.Contains(ev[prefix+"hidden_areas"], want) {
		e.t.Errorf("%s has hidden areas (%s): %v", u.label, want, ev)
	}
	if a := u.ATADrive; a != nil && a.Security&2 != 0 && a.Password == password {
		e.t.Errorf("%s is said to be erased, and has our password", u.label)
	}
	switch {
	case strings.Contains(verification, "read back as zeros"):
		if at := nonZero(u.Cached, u.Size()); at >= 0 {
			e.t.Errorf("%s holds data at %d: %s", u.label, at, verification)
		}
		e.afterPowerLoss(u, ev[prefix+"notes"])
	default:
		var blocks, size, planted int
		if _, err := fmt.Sscanf(verification, "the device reports success; %d blocks of %d KiB at random places (%d written",
			&blocks, &size,
			&planted); err != nil || !strings.Contains(verification, "other bytes") {
			e.t.Errorf("%s: the verification says %q", u.label, verification)
			return
		}
		kept := 0
		for off := int64(0); off < u.Size(); off += int64(size) << 10 {
			n := min(int64(size)<<10, u.Size()-off)
			now := view(u.Cached).get(off, n)
			if bytes.Equal(now, view(u.before.Durable).get(off, n)) && !bytes.Equal(now, make([]byte, n)) {
				kept++
			}
		}
		all := int((u.Size() + int64(size)<<10 - 1) / (int64(size) << 10))
		if blocks > all-kept || blocks == 0 {
			e.t.Errorf("%s: %d of %d blocks are as they were, and it is said: %s", u.label, kept, all, verification)
		}
	}
}

// afterPowerLoss checks that zeros stay zeros, unless the evidence states that they may not. A disk that lies about a
// command which guarantees zeros cannot be distinguished from an honest one by reading.
func (e *erasure) afterPowerLoss(u *unit, notes string) {
	later := u.PowerOn()
	if at := nonZero(later.Durable, u.Size()); at >= 0 && !u.ZeroLie && !strings.Contains(notes, "after a loss of power") {
		e.t.Errorf("%s holds data at %d after a loss of power, and it is said: %s", u.label, at, notes)
	}
}

// changed reports whether the disk holds something else than before.
func (u *unit) changed() bool {
	_, same := u.SameAs(u.before)
	return !same
}

func (e *erasure) twin(u *unit) bool {
	return slices.ContainsFunc(e.units, func(o *unit) bool {
		return o != u && firstOf(o.WWN, o.Serial, o.names[0]) == firstOf(u.WWN, u.Serial, u.names[0])
	})
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

func nonZero(v view, size int64) int64 {
	b := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(b)) {
		p := b[:min(int64(len(b)), size-off)]
		v(p, off)
		if i := slices.IndexFunc(p, func(c byte) bool { return c != 0 }); i >= 0 {
			return off + int64(i)
		}
	}
	return -1
}
