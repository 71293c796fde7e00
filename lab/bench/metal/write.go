package metal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/lab/bench/metal/guest"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/vm"
)

const aboutWrite = "How fast an image gets onto a disk: by the installer's engine, and by `zstd -dc | dd oflag=direct " +
	"conv=fsync` on the same virtual disk of the same emulated machine, in turns. The file lies in the machine's memory."

// writeOptions are the command line.
type writeOptions struct{ sizeMiB, zeros, runs, memoryMiB int }

// Write measures an image in a machine with one processor. By HTTP the server is in the same machine. The write phase
// ends when the disk has confirmed that everything is durable. It needs QEMU, zstd, coreutils, busybox and sgdisk.
func Write(f *flag.FlagSet, _ *rig.Config) func(context.Context, *report.Report) error {
	var o writeOptions
	f.IntVar(&o.sizeMiB, "size", 512, "size of the raw image in MiB")
	f.IntVar(&o.zeros, "zeros", 0, "percent of the image that are zeros; images of systems have half and more")
	f.IntVar(&o.runs, "runs", 3, "how often each way is measured")
	f.IntVar(&o.memoryMiB, "memory", 1024, "memory of the machine in MiB; the compressed file must fit")
	return func(ctx context.Context, r *report.Report) (err error) {
		dir, err := os.MkdirTemp("", "ingot-write-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		rig.Say("making an image of %d MiB, %d %% zeros", o.sizeMiB, o.zeros)
		j, err := makeImage(ctx, dir, o)
		if err != nil {
			return fmt.Errorf("make image: %w", err)
		}
		cfg, err := writeMachine(ctx, dir, o, j)
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
		addWrites(r.Run("write", "Writing an image", aboutWrite), j, results)
		return nil
	}
}

// makeImage writes raw and image.zst. The data is made of words, which compress to about a third, as programs do.
func makeImage(ctx context.Context, dir string, o writeOptions) (guest.Job, error) {
	raw, packed := filepath.Join(dir, "raw"), filepath.Join(dir, "image.zst")
	if err := fillImage(raw, o); err != nil {
		return guest.Job{}, err
	}
	for _, c := range [][]string{
		{"sgdisk", "-n", "1:2048:0", raw}, {"zstd", "-q", "-3", "-T0", raw, "-o", packed}, {"sha256sum", raw},
	} {
		b, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput()
		if err != nil {
			return guest.Job{}, fmt.Errorf("%s: %w: %s", c[0], err, b)
		}
		if c[0] == "sha256sum" {
			digest, _, _ := strings.Cut(string(b), " ")
			info, err := os.Stat(packed)
			if err != nil {
				return guest.Job{}, err
			}
			// The disk that carries it into the machine has whole sectors.
			j := guest.Job{FileSize: info.Size(), RawSize: int64(o.sizeMiB) << 20, Digest: digest, Runs: o.runs}
			return j, errors.Join(os.Truncate(packed, (info.Size()+4095)/4096*4096), os.Remove(raw))
		}
	}
	return guest.Job{}, errors.New("no digest")
}

func fillImage(path string, o writeOptions) (err error) {
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

// initramfs builds the program of package guest as the init of a machine that has programs of this host.
func initramfs(ctx context.Context, dir, out string) (imagebuild.Kernel, error) {
	program := filepath.Join(dir, "init")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", program,
		"github.com/ingot-metal/ingot/lab/bench/metal/guest/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		return imagebuild.Kernel{}, fmt.Errorf("build the machine's program: %w: %s", err, b)
	}
	tools, err := guest.Programs(ctx, "busybox", "zstd", "dd")
	if err != nil {
		return imagebuild.Kernel{}, err
	}
	cache, err := imagebuild.DefaultCacheDir()
	if err != nil {
		return imagebuild.Kernel{}, err
	}
	kernel, err := imagebuild.FindKernel(ctx, cache)
	if err != nil {
		return kernel, err
	}
	return kernel, imagebuild.Build(imagebuild.Config{Init: program, Kernel: kernel, Files: tools,
		Compression: imagebuild.Zstd, Out: out})
}

// writeMachine makes a machine with its disks: state, file, target.
func writeMachine(ctx context.Context, dir string, o writeOptions, j guest.Job) (vm.Config, error) {
	initrd := filepath.Join(dir, "initrd")
	kernel, err := initramfs(ctx, dir, initrd)
	if err != nil {
		return vm.Config{}, err
	}
	body, err := json.Marshal(j)
	if err != nil {
		return vm.Config{}, err
	}
	state, target := filepath.Join(dir, "state"), filepath.Join(dir, "target")
	if err := imagebuild.StateDisk(state, map[string][]byte{guest.JobFile: body}); err != nil {
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

// runMachine runs it to its end and returns its console.
func runMachine(ctx context.Context, cfg vm.Config) (_ string, err error) {
	v, err := vm.Start(ctx, cfg)
	if err != nil {
		return "", err
	}
	err = v.Wait(ctx)
	said, readErr := v.Serial()
	return said, errors.Join(err, v.Stop(), readErr)
}

func parse(console string) ([]guest.Result, error) {
	var out []guest.Result
	for line := range strings.Lines(console) {
		_, body, ok := strings.Cut(line, guest.Mark)
		if !ok {
			continue
		}
		var r guest.Result
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

// addWrites adds the median of each way, beside the first.
func addWrites(run *report.Run, j guest.Job, all []guest.Result) {
	mib, base := float64(j.RawSize>>20), 0.0
	for len(all) > 0 {
		way, same := all[0].Way, []guest.Result{}
		all = slices.DeleteFunc(all, func(r guest.Result) bool {
			if r.Way == way {
				same = append(same, r)
			}
			return r.Way == way
		})
		s := median(same, func(r guest.Result) float64 { return r.Seconds })
		text := fmt.Sprintf("%.2f s for %.0f MiB, %d MiB compressed, of which %d MiB went to the disk; median of %d runs",
			s, mib, j.FileSize>>20, same[0].WrittenMiB, j.Runs)
		if base == 0 {
			base = s
		} else {
			v := median(same, func(r guest.Result) float64 { return r.Verify })
			text += fmt.Sprintf("; %.2f of the rate of dd; read back in %.2f s, %.0f MiB/s; %d MiB of memory", base/s, v, mib/v,
				same[len(same)-1].PeakKiB>>10)
		}
		run.Add("image write, "+way, mib/s, "MiB/s", nil, "%s", text)
	}
}

func median[T any](list []T, of func(T) float64) float64 {
	var v []float64
	for _, r := range list {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return v[len(v)/2]
}
