package ssh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// Kept is how many bytes of each stream are kept on the machine; the rest is counted.
const Kept = 1 << 20

// Run is a script that is to run once.
type Run struct {
	// ID names it on the machine: letters, digits, _ and -.
	ID     string
	Script []byte
	Args   []string
	// Interpreter is an absolute path.
	Interpreter string
	// Limit is after how long the machine ends it by itself; whole seconds.
	Limit time.Duration
}

// State is how far a run is.
type State string

// The states of a run.
const (
	// Absent: it was never started, and nothing but Start can start it.
	Absent State = "absent"
	// Starting: the supervisor has not said a word yet.
	Starting State = "starting"
	Running  State = "running"
	// Ended: it has an exit code.
	Ended State = "ended"
	// Rebooted: the machine has been started again meanwhile; nothing runs any more, and there is no exit code.
	Rebooted State = "rebooted"
	// Orphaned: the script runs, and the supervisor is gone.
	Orphaned State = "orphaned"
	// Lost: neither runs, and there is no exit code.
	Lost State = "lost"
)

// Status is the machine's record of a run.
type Status struct {
	State State
	// Code is the exit code of a run that has ended; 128 and more stand for a signal.
	Code int
	// Left is set when processes of a killed run are still there.
	Left bool
	// TimedOut and Killed say that it did not end by itself.
	TimedOut, Killed bool
	// Begun is set when the script itself was about to be started.
	Begun          bool
	Stdout, Stderr Stream
}

// Stream is how much a run has written.
type Stream struct {
	// Kept bytes can be read, More were let go.
	Kept, More int64
}

// line reads one: the parts of a request are lines.
func lines(parts ...string) string { return strings.Join(parts, "\n") + "\n" }

func (c *Client) request(id string, more ...string) string {
	return lines(append([]string{c.base, id}, more...)...)
}

// Put brings everything that a run needs to the machine, and reads it back. It starts nothing, and changes nothing of a
// run that was started.
func (c *Client) Put(ctx context.Context, r Run) error {
	args, err := encodeArgs(r.Args)
	if err != nil {
		return failure.Invalid("INVALID_FIELD", "%v", err)
	}
	in := c.request(r.ID, fmt.Sprint(len(r.Args))) + args + lines(fmt.Sprint(strings.Count(supervisor, "\n"))) + supervisor
	said, err := c.call(ctx, longTimeout, putText, io.MultiReader(strings.NewReader(in), bytes.NewReader(r.Script)))
	if err != nil {
		return c.failed("upload the script", err)
	}
	if strings.TrimSpace(string(said)) == "started" {
		return nil
	}
	want := sum([]byte(args)) + sum([]byte(supervisor)) + sum(r.Script)
	if got := digests(string(said)); got != want {
		return failure.Unavailable("SSH_UNREACHABLE", "the script did not arrive whole; nothing was started")
	}
	return nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// digests takes the first word of every line of sha256sum(1).
func digests(said string) string {
	out := ""
	for line := range strings.Lines(said) {
		digest, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		out += digest
	}
	return out
}

// Start starts a run that was put there, unless it was started before. After an error that Cut reports the outcome is
// unknown; then Start may be called again.
func (c *Client) Start(ctx context.Context, r Run) error {
	in := c.request(r.ID, fmt.Sprint(int64((r.Limit+time.Second-1)/time.Second)), r.Interpreter)
	said, err := c.call(ctx, callTimeout, startText, strings.NewReader(in))
	if err != nil {
		return c.failed("start the script", err)
	}
	switch strings.TrimSpace(string(said)) {
	case "begun", "already":
		return nil
	}
	return fmt.Errorf("start the script: %w: the machine answered %.100q", errCut, said)
}

// Status asks how far a run is.
func (c *Client) Status(ctx context.Context, id string) (Status, error) {
	said, err := c.call(ctx, callTimeout, lookText, strings.NewReader(c.request(id)))
	if err != nil {
		return Status{}, c.failed("look at the run", err)
	}
	s, err := parseStatus(string(said))
	if err != nil {
		return Status{}, fmt.Errorf("look at the run: %w", err)
	}
	return s, nil
}

func parseStatus(said string) (Status, error) {
	if strings.TrimSpace(said) == string(Absent) {
		return Status{State: Absent}, nil
	}
	var s Status
	var code, left string
	var timedOut, killed, begun int
	n, err := fmt.Sscan(said, &s.State, &code, &left, &timedOut, &killed, &begun, &s.Stdout.Kept, &s.Stdout.More,
		&s.Stderr.Kept, &s.Stderr.More)
	if err != nil {
		return Status{}, fmt.Errorf("%w: field %d of %.100q: %w", errCut, n, said, err)
	}
	if s.State == Ended {
		if _, err := fmt.Sscan(code, &s.Code); err != nil {
			return Status{}, fmt.Errorf("%w: exit code %.20q: %w", errCut, code, err)
		}
	}
	s.Left, s.TimedOut, s.Killed, s.Begun = left == "left", timedOut == 1, killed == 1, begun == 1
	return s, nil
}

// Read returns kept bytes of "stdout" or "stderr" from an offset on, at most 64 KiB.
func (c *Client) Read(ctx context.Context, id, stream string, from int64) ([]byte, error) {
	said, err := c.call(ctx, callTimeout, readText, strings.NewReader(c.request(id, stream, fmt.Sprint(from))))
	if err != nil {
		return nil, c.failed("read the output", err)
	}
	return said, nil
}

// Kill ends a run's process group: TERM, after two seconds KILL. Look returns its effect.
func (c *Client) Kill(ctx context.Context, id string) error {
	_, err := c.call(ctx, callTimeout, killText, strings.NewReader(c.request(id)))
	return c.failed("kill the script", err)
}

// Forget removes the script, its arguments and its output from the machine once the run has ended. That it ran stays.
func (c *Client) Forget(ctx context.Context, id string) error {
	_, err := c.call(ctx, callTimeout, forgetText, strings.NewReader(c.request(id)))
	return c.failed("forget the run", err)
}

func (c *Client) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Cut reports whether an error came from the connection, and so is no evidence about the run.
func Cut(err error) bool { return errors.Is(err, errCut) || failure.HasReason(err, "SSH_UNREACHABLE") }
