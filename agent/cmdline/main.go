// Package cmdline is the command line of the agent: its verbs, flags and exit codes.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent/enroll"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/when"
)

// Exit codes.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitDoctor     = 3 // doctor found something that fails
	exitSuperseded = 4 // a newer process uses the identity
	exitRefused    = 5 // enrolment was refused for good
	exitInUse      = 6 // another process works on the state directory
	exitClosed     = 7 // the packet filter's policy could not be read
)

// Main runs the agent's command line until ctx ends, and returns the exit code. As process 1 of a machine it runs the
// agent on the state disk, whatever the arguments. version may be empty.
func Main(ctx context.Context, args []string, version string) int {
	if err := failpoint.FromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, "ingot-agent:", err)
		return exitUsage
	}
	app := app{version: versionOr(version)}
	if pid1.IsInit() {
		return code(app.asInit(ctx))
	}
	root := app.root()
	root.SetArgs(args)
	return code(root.ExecuteContext(ctx))
}

// app is what the verbs share.
type app struct{ version string }

func code(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "ingot-agent:", err.Error()+reasonOf(err))
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, doctor.ErrFault):
		return exitDoctor
	case errors.Is(err, session.ErrSuperseded):
		return exitSuperseded
	case errors.Is(err, enroll.ErrRefused):
		return exitRefused
	case errors.Is(err, state.ErrInUse):
		return exitInUse
	case errors.Is(err, firewall.ErrPolicyFile):
		return exitClosed
	}
	return exitFailed
}

// reasonOf adds the controller's reason, on which scripts may switch, to an error that carries one.
func reasonOf(err error) string {
	var remote interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &remote) {
		return ""
	}
	if r := failure.ReasonOf(remote.GRPCStatus().Err()); r != "" {
		return " (" + r + ")"
	}
	return ""
}

// asInit runs the agent as the only program of a machine.
func (a app) asInit(ctx context.Context) error {
	log, err := obs.NewLogger(os.Stderr, obs.LogConfig{})
	if err != nil {
		return err
	}
	return pid1.Run(ctx, log, func(sys *pid1.System) error { return a.runAsInit(ctx, log, sys) })
}

func versionOr(version string) string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// buildTime is a moment that has passed for sure: that of the commit that this binary was built from, where the
// build recorded it, or else that of the executable file.
func buildTime() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key != "vcs.time" {
				continue
			}
			if t, ok := when.Exact(s.Value); ok {
				return t
			}
		}
	}
	if fi, err := os.Stat("/proc/self/exe"); err == nil {
		return fi.ModTime()
	}
	return time.Time{}
}
