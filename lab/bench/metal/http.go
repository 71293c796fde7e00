package metal

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
)

const aboutHTTP = "How fairly a site's boot server serves many machines at once: how long the slowest takes against " +
	"the fastest. Server and machines are processes on loopback; the machines are curl."

// fetching is one way in which machines fetch.
type fetching struct {
	name, path string // in the path, * is the digest
	// warm puts the file at the site before any machine asks.
	warm bool
	// slow makes each so many-th machine take 2 MiB/s and no more; those don't count for the ratio.
	slow int
}

var fetchings = []fetching{
	{"image, at the site", "/blob/*", true, 0},
	{"image, on its way in", "/blob/*", false, 0},
	{"image, every 8th machine slow", "/blob/*", true, 8},
	{"unified kernel, parameters put in", "/boot/" + token + "/uki.efi", true, 0},
}

// HTTP measures each way several times and takes the median by ratio, because on a small machine one stray process
// spoils a run. A file takes the place of the controller behind the server.
func HTTP(f *flag.FlagSet, _ *rig.Config) func(context.Context, *report.Report) error {
	machines := f.Int("machines", 64, "how many machines fetch at once")
	mib := f.Int("mib", 128, "size of the image in MiB")
	runs := f.Int("runs", 1, "how often each way is measured")
	fair := f.Float64("fair", 2, "the ratio of slowest to fastest that is still fair")
	only := f.String("only", "", "measure only the ways that have this in their name")
	return func(ctx context.Context, r *report.Report) error {
		run := r.Run("http", "Booting over HTTP", aboutHTTP)
		for _, c := range fetchings {
			if !strings.Contains(c.name, *only) {
				continue
			}
			all := make([]fetched, *runs)
			for i := range all {
				var err error
				if all[i], err = fetchOnce(ctx, *machines, *mib, c); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			slices.SortFunc(all, func(a, b fetched) int { return int(1000 * (a.ratio() - b.ratio())) })
			m := all[len(all)/2]
			run.Add(c.name+": slowest of fastest", m.ratio(), "", report.AtMost(*fair),
				"%d machines, %d MiB each: %.2f to %.2f s, %.0f MiB/s together; server %.1f MiB and %.2f s of processor time",
				*machines, *mib, m.fastest, m.slowest, m.rate, m.peak, m.cpu.Seconds())
		}
		return nil
	}
}

// fetched is the outcome of one run.
type fetched struct {
	fastest, slowest float64 // in seconds
	rate             float64 // of all machines together, in MiB/s
	peak             float64 // of the server's resident memory, in MiB
	cpu              time.Duration
}

func (o fetched) ratio() float64 { return o.slowest / o.fastest }

// fetchOnce starts a server and all machines.
func fetchOnce(ctx context.Context, machines, mib int, c fetching) (out fetched, err error) {
	dir, err := os.MkdirTemp("", "bench-http-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := store(dir, mib)
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", HTTPVerb, file, filepath.Join(dir, "cache"))
	cmd.Stderr = os.Stderr
	stop, err := cmd.StdinPipe()
	if err != nil {
		return out, err
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	if err := cmd.Start(); err != nil {
		return out, err
	}
	var base string
	if _, err = fmt.Fscan(bufio.NewReader(says), &base); err == nil {
		out, err = fetchAll(ctx, machines, c, base+strings.ReplaceAll(c.path, "*", filepath.Base(file)))
	}
	if err == nil {
		var peak int64
		peak, err = measure.Peak(cmd.Process.Pid)
		out.peak = float64(peak) / measure.MiB
	}
	err = errors.Join(err, stop.Close(), cmd.Wait())
	out.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return out, err
}

// fetchAll makes all machines begin at one moment: each shell waits for the end of its standard input.
func fetchAll(ctx context.Context, machines int, c fetching, url string) (out fetched, err error) {
	if c.warm {
		if _, _, err := curl(ctx, nil, url, "0"); err != nil {
			return out, err
		}
	}
	begin, release, err := os.Pipe()
	if err != nil {
		return out, err
	}
	defer begin.Close()
	seconds, bytes := make([]float64, machines), make([]float64, machines)
	slow := func(i int) bool { return c.slow > 0 && i%c.slow == 0 }
	group, ctx := task.New(ctx)
	for i := range machines {
		rate := "0"
		if slow(i) {
			rate = "2M"
		}
		group.Go("machine", func(ctx context.Context) (err error) {
			seconds[i], bytes[i], err = curl(ctx, begin, url, rate)
			return err
		})
	}
	err = rig.Pause(ctx, time.Second) // the shells have started by then
	start := time.Now()
	if err := errors.Join(err, release.Close(), group.Wait()); err != nil {
		return out, err
	}
	out.fastest = math.Inf(1)
	for i, s := range seconds {
		out.rate += bytes[i] / measure.MiB / time.Since(start).Seconds()
		if !slow(i) {
			out.fastest, out.slowest = min(out.fastest, s), max(out.slowest, s)
		}
	}
	return out, nil
}

// curl fetches a file once its input has ended, and returns the seconds that it took and the bytes that came.
func curl(ctx context.Context, begin io.Reader, url, rate string) (seconds, bytes float64, err error) {
	cmd := exec.CommandContext(ctx, "sh", "-c",
		`read -r _; exec curl -sSf -o /dev/null --limit-rate "$1" -w '%{time_total} %{size_download}' "$2"`, "sh", rate, url)
	cmd.Stdin, cmd.Stderr = begin, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("fetch %s by curl: %w", url, err)
	}
	_, err = fmt.Sscan(string(out), &seconds, &bytes)
	return seconds, bytes, err
}
