package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
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
	cmd.Env = append(
		os.Environ(),
		"CONSOLE_URL="+b.rest.base,
		"CONSOLE_TOKEN="+b.Token,
		fmt.Sprintf(
			"CONSOLE_MACHINES=%d",
			b.o.machines,
		),
		fmt.Sprintf("CONSOLE_MEMORY_MS=%d", b.o.memory.Milliseconds()),
		"CONSOLE_SERIAL="+serial(b.o.machines-1),
	)
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
			rig.Say("%s", lines.Text())
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
		rig.Say("%s: %.1f", s.Figure, s.Value)
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
	paint := "an empty page's paint"
	t.run.Add("first useful paint", v["useful"], "ms", report.AtMost(1000), "%s", beside(v["useful"], empty, paint))
	t.run.Add("the whole map is drawn", v["map"], "ms", nil, "%s", beside(v["map"], empty, paint))
	t.run.Add("answer to a filter of the list", v["filter"], "ms", report.AtMost(300), "%s",
		beside(v["filter"], filter, "the bare SQL"))
	t.run.Add("answer to a filter of the map", v["map filter"], "ms", report.AtMost(300), "until it is drawn")
	t.run.Add("answer to a search of the fleet", v["search"], "ms", report.AtMost(300),
		"from the last key, with the %d ms that the page waits for another", 120)
	t.run.Add("the map of a moment", v["past"], "ms", nil, "until it is drawn")
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
	t.run.Add("change on the screen after its commit: p99", seen.P99, "ms", report.AtMost(1000),
		"p50 %.0f ms of %d, at %.0f changes a second", seen.P50, seen.N, t.rates[0])
	t.run.Add("frames while the list scrolls", v["list frames"], "/s", report.AtLeast(60, ""), "the slowest took %.0f ms",
		v["list slowest"])
	t.run.Add("frames while the first screen scrolls", v["map frames"], "/s", report.AtLeast(60, ""),
		"the slowest took %.0f ms", v["map slowest"])
	t.run.Add("memory of the tab", v["tab"], "MiB", report.AtMost(300),
		"after %v with %.0f changes a second; heap of scripts %.0f MiB", t.o.memory, t.rates[len(t.rates)-1], v["heap"])
	return nil
}
