package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/agent/hwtest"
)

// diskRate is what a simulated disk reads, in MB/s.
const diskRate = 3000

// testSteps is how often a simulated test reports progress.
const testSteps = 20

// TestHardware judges the parts of the simulated inventory, in the time that was asked for. Its figures are those of
// its parts, the same every time; a script may have its disk fail.
func (m *Machine) TestHardware(ctx context.Context, cfg hwtest.Config) (hwtest.Report, error) {
	doc, err := m.Inventory(ctx)
	if err != nil {
		return hwtest.Report{}, err
	}
	for step := range testSteps {
		cfg.Progress(step*100/testSteps, "simulated")
		if err := m.tick(ctx, cfg.For/time.Duration(testSteps)); err != nil {
			return hwtest.Report{}, fmt.Errorf("test %s: %w", m.id, err)
		}
	}
	st, err := m.world.update(m.id, func(st *MachineState, _ time.Time) error {
		st.Asked[KindDiskHealth]++
		return m.check(st)
	})
	if err != nil {
		return hwtest.Report{}, err
	}
	disk := m.world.script.find(m.id, KindDiskHealth, st.Asked[KindDiskHealth]).Mode
	out := hwtest.Report{Model: hwtest.ModelOf(doc)}
	add := func(r hwtest.Result) {
		if cfg.Wants(r.Test) {
			out.Results = append(out.Results, r)
		}
	}
	for _, n := range doc.NICs {
		add(hwtest.Result{Test: hwtest.NIC, Part: n.Name + " " + n.MAC, Class: n.Driver + " " + n.Name,
			Verdict: hwtest.Passed, Figure: float64(n.SpeedMbps), Unit: "Mbit/s", Detail: "simulated"})
	}
	add(hwtest.Result{Test: hwtest.CPU, Verdict: hwtest.Passed, Figure: float64(doc.CPU.Threads), Unit: "MHash/s",
		Detail: "simulated"})
	for _, d := range doc.Memory.DIMMs {
		add(hwtest.Result{Test: hwtest.Memory, Part: d.Locator, Verdict: hwtest.Passed, Detail: "simulated"})
	}
	for _, d := range doc.Disks {
		r := hwtest.Result{Test: hwtest.Disk, Part: d.Serial, Class: d.Model, Verdict: hwtest.Passed, Detail: "simulated",
			Figure: diskRate, Unit: "MB/s"}
		switch disk {
		case "":
		case Late:
			r.Figure /= 10
		default:
			r.Verdict, r.Detail = hwtest.Failed, "SMART: simulated: the disk expects to fail"
		}
		add(r)
	}
	return out, nil
}
