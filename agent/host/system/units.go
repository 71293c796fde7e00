package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// rollbackUnit is the transient timer, and the service that it starts. It is no unit of a package, so that a change is
// guarded however the agent was installed.
const rollbackUnit = "ingot-rollback-deadline"

// rollbackAgain is the time between two tries to go back.
const rollbackAgain = 10 * time.Second

// armTimer has systemd itself start `ingot-agent rollback --pending` after a while. It replaces an older timer.
func armTimer(ctx context.Context, after time.Duration) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	conn, err := systemd.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	if err := stopUnit(ctx, conn, rollbackUnit+".timer"); err != nil {
		return err
	}
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitAux(ctx, rollbackUnit+".timer", "replace", timerProperties(after),
		[]systemd.PropertyCollection{{Name: rollbackUnit + ".service", Properties: serviceProperties(binary)}}, done)
	if err != nil {
		return fmt.Errorf("start %s.timer: %w", rollbackUnit, err)
	}
	return jobDone(ctx, "start "+rollbackUnit+".timer", done)
}

// disarmTimer stops the timer. One that has gone off already is no error: what it starts finds nothing pending.
func disarmTimer(ctx context.Context) error {
	conn, err := systemd.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	return stopUnit(ctx, conn, rollbackUnit+".timer")
}

func stopUnit(ctx context.Context, conn *systemd.Conn, name string) error {
	done := make(chan string, 1)
	_, err := conn.StopUnitContext(ctx, name, "replace", done)
	var remote dbus.Error
	if errors.As(err, &remote) && remote.Name == "org.freedesktop.systemd1.NoSuchUnit" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return jobDone(ctx, "stop "+name, done)
}

// restartUnit returns when the unit is up again. It does not wait for units that the restarted one comes after: one of
// them, ingot-rollback.service, may be who asks.
func restartUnit(ctx context.Context, name string) error {
	conn, err := systemd.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := conn.RestartUnitContext(ctx, name, "ignore-dependencies", done); err != nil {
		return fmt.Errorf("restart %s: %w", name, err)
	}
	return jobDone(ctx, "restart "+name, done)
}

// unitState returns a unit's ActiveState: org.freedesktop.systemd1(5).
func unitState(ctx context.Context, name string) (string, error) {
	conn, err := systemd.NewSystemdConnectionContext(ctx)
	if err != nil {
		return "", fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	p, err := conn.GetUnitPropertyContext(ctx, name, "ActiveState")
	if err != nil {
		return "", fmt.Errorf("read the state of %s: %w", name, err)
	}
	state, ok := p.Value.Value().(string)
	if !ok {
		return "", fmt.Errorf("read the state of %s: systemd says %s", name, p.Value)
	}
	return state, nil
}

// detachedLimit is what a program on its own is given, as the distribution's units give it.
const detachedLimit = 5 * time.Minute

// runDetached has systemd run a program as a unit of its own, ingot-<what>-<random>.service. What the program starts in
// the background stays when it ends.
func runDetached(ctx context.Context, what string, wait bool, argv ...string) error {
	conn, err := systemd.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	unit := fmt.Sprintf("ingot-%s-%08x.service", what, rand.Uint32())
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, unit, "replace", []systemd.Property{
		systemd.PropDescription(strings.Join(argv, " ")),
		systemd.PropExecStart(argv, false),
		property("Type", "oneshot"),
		property("KillMode", "process"),
		// It may be asked for early in a boot, by a unit that others wait for.
		property("DefaultDependencies", false),
		property("CollectMode", "inactive-or-failed"),
		property("TimeoutStartUSec", uint64(detachedLimit.Microseconds())),
	}, done)
	if err != nil {
		return fmt.Errorf("start %s: %w", unit, err)
	}
	if !wait {
		return nil
	}
	if err := jobDone(ctx, strings.Join(argv, " "), done); err != nil {
		return fmt.Errorf("%w (journalctl -u %s)", err, unit)
	}
	return nil
}

func jobDone(ctx context.Context, what string, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: job ended with %q", what, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

type monotonicTimer struct {
	Base string
	USec uint64
}

func timerProperties(after time.Duration) []systemd.Property {
	return []systemd.Property{
		systemd.PropDescription("Deadline of an unproven Ingot configuration"),
		property("TimersMonotonic", []monotonicTimer{{"OnActiveSec", uint64(after.Microseconds())}}),
		property("AccuracyUSec", uint64(100_000)),
		property("RemainAfterElapse", false),
	}
}

func serviceProperties(binary string) []systemd.Property {
	return []systemd.Property{
		systemd.PropDescription("Roll back an unproven Ingot configuration"),
		systemd.PropExecStart([]string{binary, "rollback", "--pending"}, false),
		property("Type", "oneshot"),
		property("CollectMode", "inactive-or-failed"),
		// What could not be undone is tried again for ever.
		property("Restart", "on-failure"),
		property("RestartUSec", uint64(rollbackAgain.Microseconds())),
		property("StartLimitIntervalUSec", uint64(0)),
	}
}

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}
