package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/lab/benchmetal/guest"
	"github.com/ingot-metal/ingot/lab/vm"
)

// job is what the machine finds on its state disk.
type job struct {
	FileSize int64  `json:"file_size"`
	RawSize  int64  `json:"raw_size"`
	Digest   string `json:"digest"`
	Runs     int    `json:"runs"`
}

const (
	jobFile = "job.json"
	// mark begins the lines of the console that are results.
	mark = "RESULT "
)

// result is one measurement.
type result struct {
	Way string `json:"way"`
	// Seconds of the write phase, and of the reading back where there is one.
	Seconds float64 `json:"seconds"`
	Verify  float64 `json:"verify,omitempty"`
	// PeakKiB is the highest resident set of the process so far.
	PeakKiB int64 `json:"peak_kib,omitempty"`
	// WrittenMiB went to the disk.
	WrittenMiB int64  `json:"written_mib,omitempty"`
	Error      string `json:"error,omitempty"`
}

func outside(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "ingot-write-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(out, "making an image of %d MiB, %d%% zeros\n", o.sizeMiB, o.zeros)
	j, err := makeImage(ctx, dir, o)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	cfg, err := machine(ctx, dir, o, j)
	if err != nil {
		return fmt.Errorf("make machine: %w", err)
	}
	console, err := runMachine(ctx, cfg)
	if err != nil {
		return err
	}
	results, err := parse(console)
	if err != nil {
		return fmt.Errorf("%w; the machine said:\n%s", err, console)
	}
	return report(out, j, results)
}

// makeImage writes raw and image.zst. The data is made of words, which compress to about a third, as programs do.
func makeImage(ctx context.Context, dir string, o options) (job, error) {
	raw, packed := filepath.Join(dir, "raw"), filepath.Join(dir, "image.zst")
	if err := fill(raw, o); err != nil {
		return job{}, err
	}
	for _, c := range [][]string{
		{"sgdisk", "-n", "1:2048:0", raw}, {"zstd", "-q", "-3", "-T0", raw, "-o", packed}, {"sha256sum", raw},
	} {
		b, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput()
		if err != nil {
			return job{}, fmt.Errorf("%s: %w: %s", c[0], err, b)
		}
		if c[0] == "sha256sum" {
			digest, _, _ := strings.Cut(string(b), " ")
			info, err := os.Stat(packed)
			if err != nil {
				return job{}, err
			}
			// The disk that carries it into the machine has whole sectors.
			j := job{FileSize: info.Size(), RawSize: int64(o.sizeMiB) << 20, Digest: digest, Runs: o.runs}
			return j, errors.Join(os.Truncate(packed, (info.Size()+4095)/4096*4096), os.Remove(raw))
		}
	}
	return job{}, errors.New("no digest")
}

func fill(path string, o options) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([][]byte, 4096)
	for i := range words {
		words[i] = make([]byte, 4+rng.IntN(12))
		for k := range words[i] {
			words[i][k] = byte(rng.Uint32())
		}
	}
	w := bufio.NewWriterSize(f, 1<<20)
	block := make([]byte, 0, 1<<20+16)
	for i := range o.sizeMiB {
		block = block[:0]
		// Zeros come in stretches of MiB, between data.
		if i*o.zeros/100 != (i+1)*o.zeros/100 {
			block = append(block, make([]byte, 1<<20)...)
		}
		for len(block) < 1<<20 {
			block = append(block, words[rng.IntN(len(words))]...)
		}
		if _, err := w.Write(block[:1<<20]); err != nil {
			return err
		}
	}
	return w.Flush()
}

// machine builds this program as the init of a machine with dd and zstd, and its disks: state, file, target.
func machine(ctx context.Context, dir string, o options, j job) (vm.Config, error) {
	program, initrd := filepath.Join(dir, "init"), filepath.Join(dir, "initrd")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/ingot-metal/ingot/lab/benchmetal/write")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		return vm.Config{}, fmt.Errorf("build the machine's program: %w: %s", err, b)
	}
	tools, err := guest.Programs(ctx, "dd", "zstd")
	if err != nil {
		return vm.Config{}, err
	}
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		return vm.Config{}, err
	}
	kernel, err := debian.FindKernel(ctx, cache)
	if err != nil {
		return vm.Config{}, err
	}
	if err := imagebuild.Build(imagebuild.Config{Init: program, Kernel: kernel, Files: tools, Out: initrd}); err != nil {
		return vm.Config{}, err
	}
	body, err := json.Marshal(j)
	if err != nil {
		return vm.Config{}, err
	}
	state, target := filepath.Join(dir, "state"), filepath.Join(dir, "target")
	if err := ext4.StateDisk(state, map[string][]byte{jobFile: body}); err != nil {
		return vm.Config{}, err
	}
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Truncate(target, int64(o.sizeMiB+128)<<20)); err != nil {
		return vm.Config{}, err
	}
	return vm.Config{
		Name: "write", Dir: filepath.Join(dir, "vm"), Kernel: kernel.Image, Initrd: initrd, StateDisk: state,
		ExtraDisks: []string{filepath.Join(dir, "image.zst"), target}, MemoryMB: o.memoryMiB,
	}, nil
}

// runMachine lets it run to its end and gives its console.
func runMachine(ctx context.Context, cfg vm.Config) (_ string, err error) {
	v, err := vm.Start(ctx, cfg)
	if err != nil {
		return "", err
	}
	err = v.Wait(ctx)
	said, readErr := v.Serial()
	return said, errors.Join(err, v.Stop(), readErr)
}

func parse(console string) ([]result, error) {
	var out []result
	for line := range strings.Lines(console) {
		_, body, ok := strings.Cut(line, mark)
		if !ok {
			continue
		}
		var r result
		if err := json.Unmarshal(bytes.TrimSpace([]byte(body)), &r); err != nil {
			return nil, fmt.Errorf("read %q: %w", body, err)
		}
		if r.Error != "" {
			return nil, fmt.Errorf("%s: %s", r.Way, r.Error)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, errors.New("no results")
	}
	return out, nil
}

// report prints the median of each way, and how it compares with the first.
func report(out io.Writer, j job, all []result) error {
	var ways []string
	byWay := map[string][]result{}
	for _, r := range all {
		if byWay[r.Way] == nil {
			ways = append(ways, r.Way)
		}
		byWay[r.Way] = append(byWay[r.Way], r)
	}
	mib := float64(j.RawSize >> 20)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "way\twrite\tMiB/s\tof dd\tread back\tMiB/s\tto disk\tpeak RSS\t")
	base := median(byWay[ways[0]], func(r result) float64 { return r.Seconds })
	for _, way := range ways {
		rs := byWay[way]
		s, v := median(rs, func(r result) float64 { return r.Seconds }),
			median(rs, func(r result) float64 { return r.Verify })
		back, backRate, peak := "-", "-", "-"
		if v > 0 {
			back, backRate, peak = seconds(v), fmt.Sprintf("%.0f", mib/v), fmt.Sprintf("%d MiB", rs[len(rs)-1].PeakKiB>>10)
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%s\t%s\t%d MiB\t%s\t\n", way, seconds(s), mib/s, base/s, back, backRate,
			rs[0].WrittenMiB, peak)
	}
	fmt.Fprintf(w, "(%.0f MiB raw, %d MiB compressed, medians of %d runs)\n", mib, j.FileSize>>20, j.Runs)
	return w.Flush()
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

func median(rs []result, of func(result) float64) float64 {
	var v []float64
	for _, r := range rs {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return v[len(v)/2]
}
