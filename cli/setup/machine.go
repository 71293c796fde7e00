package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/pki"
)

// program is a call of another program.
type program struct {
	name  string
	args  []string
	stdin string
	// env is added to the environment.
	env []string
	// user is who runs it; root when empty.
	user string
}

// programs runs other programs and returns their output.
type programs func(context.Context, program) (string, error)

// errExit is a program's end with another exit code than 0.
type errExit struct {
	code int
	text string
}

func (e *errExit) Error() string { return e.text }

// programTime limits one call; migrations of a database happen in a service, not here.
const programTime = 5 * time.Minute

func runProgram(ctx context.Context, p program) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	args, env := append([]string{p.name}, p.args...), []string{}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "INGOT_") && !strings.HasPrefix(e, "XDG_") {
			env = append(env, e)
		}
	}
	if p.user != "" {
		u, err := user.Lookup(p.user)
		if err != nil {
			return "", err
		}
		args = append([]string{"runuser", "-u", p.user, "--"}, args...)
		env = append(env, "HOME="+u.HomeDir, "USER="+p.user, "LOGNAME="+p.user)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = "/" // which every user may enter
	cmd.Env = append(env, append(p.env, "LC_ALL=C.UTF-8")...)
	cmd.Stdin = strings.NewReader(p.stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		text := strings.TrimSpace(errs.String())
		if text == "" {
			text = strings.TrimSpace(out.String())
		}
		return out.String(), &errExit{exit.ExitCode(), fmt.Sprintf("%s: %s", p.name, text)}
	}
	return out.String(), err
}

// files are those of this machine, or of a tree in tests.
type files struct{ root string }

func (f files) path(name string) string { return filepath.Join(f.root, name) }

func (f files) exists(name string) bool {
	_, err := os.Stat(f.path(name))
	return err == nil
}

// write replaces a file atomically, with root and a group as its owners.
func (f files) write(name, content string, mode os.FileMode, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	return pki.WriteFileFor(f.path(name), []byte(content), mode, 0, gid)
}

// until repeats a question until the answer is nil or the time is over, and returns the last answer.
func until(ctx context.Context, limit time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}
