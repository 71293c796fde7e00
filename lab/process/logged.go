package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// Logged is a program that writes to a log file. It can be started again when it has ended.
type Logged struct {
	// Process is the one that was started last; nil before the first start.
	*Process
	Name string
	// Log is the file that the output is added to.
	Log string
	// Command makes what each start runs.
	Command func() *exec.Cmd
}

// Start starts the program.
func (p *Logged) Start() error {
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer out.Close() // the program has its own copy
	cmd := p.Command()
	cmd.Stdout, cmd.Stderr = out, out
	p.Process, err = run(cmd)
	return err
}

// Stop asks the program to end, and kills it when it has not after the limit. One that was never started is no error.
func (p *Logged) Stop(limit time.Duration) error {
	if p.Process == nil {
		return nil
	}
	return p.Process.Stop(limit)
}

// Await polls for ok until it is true. It returns an error when the program or ctx ends, and after a minute.
func (p *Logged) Await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-p.Gone():
			return fmt.Errorf("%s ended before %s: %w:\n%s", p.Name, what, p.Result(), p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; %s says:\n%s", what, ctx.Err(), p.Name, p.Tail())
		case <-clock.Real().After(20 * time.Millisecond):
		}
	}
	return nil
}

// Result is an error in any case: an end without an order is one.
func (p *Logged) Result() error {
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}

// Tail is the end of the log.
func (p *Logged) Tail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// Ready asks /readyz of a controller's HTTP listener.
func Ready(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing of it is read
	return resp.StatusCode == http.StatusOK
}
