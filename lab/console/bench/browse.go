package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// said is a line of the browser's script: a figure, or what it asks for.
type said struct {
	Figure string  `json:"figure"`
	Value  float64 `json:"value"`
	Ask    string  `json:"ask"`
	// Seen is when the number of probes that are on the screen has grown to its place in the list, in milliseconds of
	// the epoch.
	Seen []float64 `json:"seen"`
}

// browse runs the browser's script.
func (b *bench) browse(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "test/bench.mjs")
	cmd.Dir = b.o.web
	cmd.Env = append(os.Environ(), "CONSOLE_URL="+b.rest.base, "CONSOLE_TOKEN="+b.Token,
		fmt.Sprintf("CONSOLE_MACHINES=%d", b.o.machines), fmt.Sprintf("CONSOLE_MEMORY_MS=%d", b.o.memory.Milliseconds()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	t := &talk{bench: b, values: map[string]float64{}}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var s said
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			benchrig.Say("%s", lines.Text())
			continue
		}
		err := t.hear(ctx, s)
		if err == nil && s.Ask != "" {
			_, err = fmt.Fprintln(in, `{"answer": "done"}`)
		}
		if err != nil {
			return err
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the browser's script: %w", err)
	}
	return t.report(ctx)
}

// talk is what the browser's script has said so far.
type talk struct {
	*bench
	changes *changes
	commits []time.Time
	seen    []float64
	values  map[string]float64
	rates   []float64
}

func (t *talk) hear(ctx context.Context, s said) error {
	switch {
	case s.Figure != "":
		t.values[s.Figure] = s.Value
		benchrig.Say("%s: %.1f", s.Figure, s.Value)
	case len(s.Seen) > 0:
		t.seen = s.Seen
	case s.Ask == "change":
		t.changes = t.change(ctx, t.o.rate)
	case s.Ask == "stop":
		t.rates = append(t.rates, t.changes.rate())
		return t.changes.end()
	case s.Ask == "probe":
		at, err := t.probe(ctx, len(t.commits))
		t.commits = append(t.commits, at)
		return err
	}
	return nil
}

// report adds the figures.
func (t *talk) report(ctx context.Context) error {
	filter, err := t.plain(
		ctx,
		"SELECT * FROM machines WHERE spec @> '{\"rack\": \"r7\"}' AND deleted_at IS NULL LIMIT 200",
	)
	if err != nil {
		return err
	}
	v := t.values
	empty := v["empty page"]
	t.add(
		figure{
			what:   "first useful paint",
			value:  v["useful"],
			unit:   "ms",
			aim:    1000,
			of:     empty,
			ofWhat: "an empty page's paint",
		},
	)
	t.add(figure{what: "the whole map is drawn", value: v["map"], unit: "ms", of: empty, ofWhat: "an empty page's paint"})
	t.add(
		figure{
			what:   "answer to a filter of the list",
			value:  v["filter"],
			unit:   "ms",
			aim:    300,
			of:     filter,
			ofWhat: "the bare SQL",
		},
	)
	t.add(figure{what: "answer to a filter of the map", value: v["map filter"], unit: "ms", aim: 300})
	t.add(figure{what: "the map of a moment", value: v["past"], unit: "ms"})
	var all []time.Duration
	for i, at := range t.seen {
		if i < len(t.commits) {
			all = append(all, time.Duration((at-float64(t.commits[i].UnixMicro())/1000)*float64(time.Millisecond)))
		}
	}
	if len(all) != len(t.commits) {
		return errors.New("not every probe was seen on the screen")
	}
	seen := measure.Percentiles(all)
	t.add(figure{what: "change on the screen after its commit: p99", value: seen.P99, unit: "ms", aim: 1000,
		note: fmt.Sprintf("p50 %.0f ms of %d, at %.0f changes a second", seen.P50, seen.N, t.rates[0])})
	t.add(figure{what: "frames while the list scrolls", value: v["list frames"], unit: "a second", aim: 60, atLeast: true,
		note: fmt.Sprintf("the slowest took %.0f ms", v["list slowest"])})
	t.add(
		figure{
			what:    "frames while the first screen scrolls",
			value:   v["map frames"],
			unit:    "a second",
			aim:     60,
			atLeast: true,
			note:    fmt.Sprintf("the slowest took %.0f ms", v["map slowest"]),
		},
	)
	note := fmt.Sprintf(
		"after %v with %.0f changes a second; heap of scripts %.0f MiB",
		t.o.memory,
		t.rates[len(t.rates)-1],
		v["heap"],
	)
	t.add(figure{what: "memory of the tab", value: v["tab"], unit: "MiB", aim: 300, note: note})
	return nil
}
