package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"time"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/measure"
)

// child is a controller that runs: a process, or a part of this one.
type child interface {
	pid() int
	rss() (int64, error)
	rest(ctx context.Context, d time.Duration) error
	until(ctx context.Context, what string, cond func() bool) error
	stop() error
}

// inProcess is a controller in this process, so that one profile shows it together with the agents and clients.
type inProcess struct {
	process // of which only the times are used
	cancel  context.CancelFunc
}

func startInProcess(ctx context.Context, file, addresses string) (*inProcess, error) {
	cfg, err := config.Load(file, func(*config.Config) {})
	if err != nil {
		return nil, err
	}
	ctl, err := controller.New(ctx, *cfg, controller.Options{Logger: slog.New(slog.DiscardHandler), Version: "bench"})
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(ctl.Addresses())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(addresses, b, 0o600); err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &inProcess{process: process{name: "controller", started: time.Now(), ended: make(chan struct{})}, cancel: cancel}
	task.Background("controller", func() {
		p.err = ctl.Run(runCtx)
		close(p.ended)
	})
	return p, nil
}

func (p *inProcess) pid() int { return os.Getpid() }

func (p *inProcess) rss() (int64, error) { return measure.RSS(os.Getpid()) }

func (p *inProcess) stop() error {
	p.cancel()
	<-p.ended
	return p.err
}

// startProfile writes a CPU profile to the file, if one is named, until the function that it gives is called.
func startProfile(file string) (end func() error, err error) {
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
