package pid1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// guardFile is where package host records a configuration that has not proved itself yet.
	guardFile  = "/etc/ingot/network/guard.json"
	bootIDFile = "/proc/sys/kernel/random/boot_id"
	guardEvery = time.Second
	// guardGrace lets the agent go back by itself first.
	guardGrace = 2 * time.Second
)

// guard is the part of the record that has the time of the rollback.
type guard struct {
	State    string        `json:"state"`
	BootID   string        `json:"boot_id"`
	Deadline time.Duration `json:"deadline_boottime_ns"`
}

// due reports whether the time of a pending configuration is up: on this boot, or because of another.
func (g guard) due(bootID string, sinceBoot time.Duration) bool {
	return g.State == "pending" && (g.BootID != bootID || sinceBoot >= g.Deadline+guardGrace)
}

// watchGuard does what systemd's timer does elsewhere: whatever has become of the agent, an unproven configuration is
// rolled back at its deadline, and at once after a reboot.
func (s *supervisor) watchGuard() {
	for {
		if guardDue(guardFile, bootIDFile, clock.Boottime()) {
			if err := startRollback(); err != nil {
				slog.Error("cannot roll back the unproven configuration", "error", err)
			}
			<-s.clock.After(guardGrace) // for it to be done
		}
		<-s.clock.After(guardEvery)
	}
}

func guardDue(file, bootID string, sinceBoot time.Duration) bool {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	id, idErr := os.ReadFile(bootID)
	if err != nil || idErr != nil {
		slog.Error("cannot read the record of the configuration", "error", errors.Join(err, idErr))
		return false
	}
	var g guard
	if err := json.Unmarshal(data, &g); err != nil {
		slog.Error("cannot read the record of the configuration", "error", err)
		return false
	}
	return g.due(strings.TrimSpace(string(id)), sinceBoot)
}

// startRollback runs this program as any other machine would. The reaper collects it.
func startRollback() error {
	slog.Warn("rolling back a configuration that has not proved itself")
	p, err := os.StartProcess("/proc/self/exe", []string{"ingot-agent", "rollback", "--pending"}, &os.ProcAttr{
		Env: os.Environ(), Dir: "/", Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return fmt.Errorf("start rollback: %w", err)
	}
	return p.Release()
}
