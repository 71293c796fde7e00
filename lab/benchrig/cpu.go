package benchrig

import (
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/ingot-metal/ingot/lab/measure"
)

// CPU is the processor time that each party has used so far, on a machine whose processors all of them share.
type CPU struct{ Controllers, Postgres, Agents, Own time.Duration }

// CPU reads the processor time. Agents are processes; those in this process are part of its own time.
func (r *Rig) CPU(agents ...int) (t CPU, err error) {
	add := func(sum *time.Duration, pid int, of func(int) (time.Duration, error)) {
		if err == nil {
			var used time.Duration
			used, err = of(pid)
			*sum += used
		}
	}
	for _, c := range r.Controllers {
		add(&t.Controllers, c.Pid(), measure.CPU)
	}
	for _, pid := range agents {
		add(&t.Agents, pid, measure.CPU)
	}
	add(&t.Postgres, r.dbPid, measure.FamilyCPU)
	add(&t.Own, os.Getpid(), measure.CPU)
	return t, err
}

// CPUUse is processor time in milliseconds for each of something, such as an operation or a second.
type CPUUse struct {
	Controller float64 `json:"controller"`
	Postgres   float64 `json:"postgres"`
	Agents     float64 `json:"agents"`
	// Own is that of clients, and of agents in this process.
	Own float64 `json:"client"`
}

// Since divides what was used since before by n.
func (t CPU) Since(before CPU, n float64) CPUUse {
	each := func(now, before time.Duration) float64 {
		return float64((now - before).Microseconds()) / 1000 / max(n, 1)
	}
	return CPUUse{
		Controller: each(t.Controllers, before.Controllers), Postgres: each(t.Postgres, before.Postgres),
		Agents: each(t.Agents, before.Agents), Own: each(t.Own, before.Own),
	}
}

// Sum is that of all parties.
func (u CPUUse) Sum() float64 { return u.Controller + u.Postgres + u.Agents + u.Own }

// Times is so many times the use: microseconds, for 1000.
func (u CPUUse) Times(n float64) CPUUse {
	return CPUUse{u.Controller * n, u.Postgres * n, u.Agents * n, u.Own * n}
}

// StartProfile writes a CPU profile to the file, if one is named, until the returned function is called.
func StartProfile(file string) (end func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
