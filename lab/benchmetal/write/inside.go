package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchmetal/guest"
	"github.com/ingot-metal/ingot/lab/measure"
)

const (
	source = "/dev/vdb"
	target = "/dev/vdc"
	file   = "/run/image.zst"
)

// inside is the program of the machine. It powers off when it returns.
func inside(ctx context.Context, sys *pid1.System) error {
	// The console is all that comes out of the machine, so that errors go there.
	if err := measureAll(ctx, sys.StateDir()); err != nil {
		say(result{Way: "the machine", Error: err.Error()})
	}
	return nil
}

func say(r result) {
	b, err := json.Marshal(r)
	if err != nil {
		b = []byte(`{"error":"` + err.Error() + `"}`)
	}
	fmt.Println(mark + string(b))
}

func measureAll(ctx context.Context, stateDir string) error {
	b, err := os.ReadFile(filepath.Join(stateDir, jobFile))
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if err := prepare(j); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	url, err := serve(ctx)
	if err != nil {
		return err
	}
	for range j.Runs {
		if err := eachWay(ctx, j, url); err != nil {
			return err
		}
	}
	return nil
}

func eachWay(ctx context.Context, j job, url string) error {
	s, err := shell(ctx, j)
	if err != nil {
		return fmt.Errorf("zstd and dd: %w", err)
	}
	say(result{Way: "zstd -dc | dd", Seconds: s.Seconds(), WrittenMiB: j.RawSize >> 20})
	fromFile := func(context.Context) (io.ReadCloser, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		return image.Decode(f, image.RawZstd)
	}
	src := image.Source{URL: url, Size: j.FileSize, Client: image.NewClient(), Clock: clock.Real(), Log: slog.Default()}
	fromServer := func(ctx context.Context) (io.ReadCloser, error) { return image.Open(ctx, src, image.RawZstd) }
	for _, way := range []struct {
		name string
		open func(context.Context) (io.ReadCloser, error)
	}{{"installer", fromFile}, {"installer, by HTTP", fromServer}} {
		if err := engine(ctx, j, way.name, way.open); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return nil
}

// prepare makes the programs executable and copies the file into memory.
func prepare(j job) error {
	if err := guest.MakeExecutable(); err != nil {
		return err
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.CopyN(out, in, j.FileSize); err != nil {
		return err
	}
	return out.Close()
}

// serve gives the file by HTTP.
func serve(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	srv := &http.Server{Handler: http.FileServer(http.Dir(filepath.Dir(file))), ReadHeaderTimeout: time.Minute}
	task.Background("serve", func() {
		// It ends with the machine.
		_ = srv.Serve(l)
	})
	return "http://" + l.Addr().String() + "/" + filepath.Base(file), nil
}

// shell is what people do.
func shell(ctx context.Context, j job) (time.Duration, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	unpack := exec.CommandContext(ctx, "/usr/bin/zstd", "-dcq", file)
	unpack.Stdout = w
	write := exec.CommandContext(ctx, "/usr/bin/dd", "of="+target, "bs=4M", "iflag=fullblock", "oflag=direct",
		"conv=fsync")
	var said, complaint bytes.Buffer
	write.Stdin, write.Stderr, unpack.Stderr = r, &said, &complaint
	begun := time.Now()
	if err := write.Start(); err != nil {
		return 0, err
	}
	if err := unpack.Start(); err != nil {
		return 0, err
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	if err := unpack.Wait(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, complaint.String())
	}
	if err := write.Wait(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, said.String())
	}
	took := time.Since(begun)
	if !strings.Contains(said.String(), fmt.Sprintf("%d bytes", j.RawSize)) {
		return 0, fmt.Errorf("dd said %q", said.String())
	}
	return took, r.Close()
}

// engine is what the installer does, without an identity for the next system.
func engine(ctx context.Context, j job, name string, open func(context.Context) (io.ReadCloser, error)) (err error) {
	digest, err := disks.ParseDigest(j.Digest)
	if err != nil {
		return err
	}
	d, err := block.Open(target, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	got, err := image.Write(ctx, image.Job{
		Disk: d, Open: open, RawSize: j.RawSize, RawDigest: digest, Clock: clock.Real(),
		State:      func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil },
		Identity:   func(context.Context) (map[string][]byte, error) { return nil, nil },
		Fill:       func(context.Context, int64, int64, map[string][]byte) error { return nil },
		Committing: func(context.Context, image.Commit) error { return nil },
	})
	if err != nil {
		return err
	}
	peak, err := measure.Peak(os.Getpid())
	if err != nil {
		return err
	}
	say(result{
		Way:        name,
		Seconds:    got.Write.Seconds(),
		Verify:     got.Verify.Seconds(),
		PeakKiB:    peak / measure.KiB,
		WrittenMiB: got.Written >> 20,
	})
	return nil
}
