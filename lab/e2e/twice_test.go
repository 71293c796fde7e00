package e2e

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestEverythingTwice sends every message of the command stream twice, in both directions, and looks at the operation
// again and again while it runs. Nothing may come of it.
func TestEverythingTwice(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	makePlan(t, c.Client)
	wire := harness.NewWire(t, c)
	for _, k := range kinds {
		for _, site := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/site=%v", k.name, site), func(t *testing.T) {
				t.Parallel()
				m := c.NewMachine(t, harness.MachineOptions{Site: site, Stopped: true, Address: wire.Address()})
				var repeated atomic.Int64
				twice := func(again bool) harness.Verdict {
					if !again {
						return harness.Pass
					}
					repeated.Add(1)
					return harness.Verdict{Copies: 2}
				}
				wire.Listen(m, harness.Hooks{
					// A number is never asked under twice; see the scenario of a memory that was rolled back.
					FromAgent:      func(a *fleetv1.AgentMessage) harness.Verdict { return twice(a.GetGrantRequest() == nil) },
					FromController: func(*fleetv1.ControllerMessage) harness.Verdict { return twice(true) },
				})
				m.Start()
				m.WaitConnected()
				rig.Maintenance(t, c.Client, m.ID)
				op, err := k.start(t, c.Client, m.ID, "work", rig.PatientTime)
				if err != nil {
					t.Fatal(err)
				}
				for begin := time.Now(); time.Since(begin) < endLimit; {
					o := c.Operation(op.GetOperationId())
					if harness.Ended(o) {
						break
					}
					// The first look makes the first command; it is the engine's, which sends it too.
					if o.GetPhase() == baremetalv1.Operation_RUNNING {
						if _, err := c.Controller().
							Store().
							Operations.Decide(
							context.Background(),
							op.GetOperationId(),
							operation.Evaluate{},
							time.Now(),
						); err != nil {
							t.Fatalf("look: %v", err)
						}
					}
					again, err := k.start(t, c.Client, m.ID, "work", rig.PatientTime)
					if k.name != "reconfigure" && (err != nil || again.GetOperationId() != op.GetOperationId()) {
						t.Fatalf("the same request again: %v, %v", again, err)
					}
				}
				rig.Ended(t, c.Wait(op.GetOperationId(), endLimit), rig.Succeeded, "")
				rig.Clean(t, m.WaitQuiet(rig.Soon))
				if !k.housekeeping && repeated.Load() == 0 {
					t.Error("nothing was sent twice")
				}
			})
		}
	}
}
