package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
)

// idleSessions measures what sessions cost the controller that only beat. Identities are made first, by one controller;
// a fresh one is measured without a session and then with all.
func (g *rig) idleSessions(ctx context.Context) (m sessionMemory, err error) {
	say("sessions: enrolling %d agents", g.o.sessions)
	stubs, err := g.enrollStubs(ctx)
	if err != nil {
		return m, err
	}
	if err := g.startController(ctx); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, g.stopController()) }()
	if err := g.controller.rest(ctx, settle); err != nil {
		return m, err
	}
	before, err := g.memory(ctx)
	if err != nil {
		return m, err
	}
	say("sessions: opening %d", len(stubs))
	s, err := g.openStubs(ctx, stubs)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	// What the opening took is not what idleness takes.
	if err := pause(ctx, settle); err != nil {
		return m, err
	}
	cpuBefore, err := g.cpuTimes()
	if err != nil {
		return m, err
	}
	if err := pause(ctx, g.o.idle); err != nil {
		return m, err
	}
	cpuAfter, err := g.cpuTimes()
	if err != nil {
		return m, err
	}
	if ended := context.Cause(s.ctx); ended != nil {
		return m, fmt.Errorf("a session ended: %w", ended)
	}
	after, err := g.memory(ctx)
	if err != nil {
		return m, err
	}
	n := float64(len(stubs))
	return sessionMemory{
		Sessions: len(stubs), RSSBefore: before.rss, RSSAfter: after.rss,
		RSSPerSession: float64(after.rss-before.rss) / n, HeapPerSession: (after.heap - before.heap) / n,
		CPU: cpuAfter.since(cpuBefore, g.o.idle.Seconds()),
	}, nil
}

func (g *rig) enrollStubs(ctx context.Context) (stubs []stub, err error) {
	if err := g.startController(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stopController()) }()
	bundles, err := g.register(ctx, "idle", g.o.sessions)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bundles {
		names = append(names, name)
	}
	stubs = make([]stub, len(names))
	err = parallel(ctx, len(names), func(ctx context.Context, i int) (err error) {
		stubs[i], err = enrollStub(ctx, filepath.Join(g.path("stubs"), names[i]), bundles[names[i]])
		return err
	})
	return stubs, err
}

// crowd is many stubs with their sessions open.
type crowd struct {
	ctx    context.Context //nolint:containedctx // ends with the first session that does
	cancel context.CancelFunc
	group  *task.Group
}

func (g *rig) openStubs(ctx context.Context, stubs []stub) (*crowd, error) {
	c := &crowd{}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	c.group, c.ctx = task.New(runCtx)
	err := parallel(ctx, len(stubs), func(ctx context.Context, i int) error {
		var once sync.WaitGroup
		once.Add(1)
		c.group.Go("stub", func(ctx context.Context) error { return stubs[i].run(ctx, g.addresses.Fleet, once.Done) })
		return await(ctx, c.ctx, once.Wait)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open sessions: %w", err), c.stop())
	}
	return c, nil
}

func (c *crowd) stop() error {
	c.cancel()
	return c.group.Wait()
}

// memory is what the controller uses.
type memory struct {
	rss int64
	// heap is what the Go runtime has in use for the heap and for stacks.
	heap float64
}

func (g *rig) memory(ctx context.Context) (m memory, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addresses.HTTP+"/metrics", http.NoBody)
	if err != nil {
		return m, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return m, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return m, fmt.Errorf("read metrics: %w", err)
	}
	for _, name := range []string{"go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes"} {
		v, err := metric(string(body), name)
		if err != nil {
			return m, err
		}
		m.heap += v
	}
	m.rss, err = g.controller.rss()
	return m, err
}

// metric finds a metric without labels in the Prometheus text format.
func metric(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
