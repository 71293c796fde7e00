package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/measure"
)

const (
	source = "/dev/vdb"
	target = "/dev/vdc"
	file   = "/run/image.zst"
	// JobFile is the name of the Job on the machine's state disk.
	JobFile = "job.json"
	// Mark begins the lines of the console that are Results.
	Mark = "RESULT "
)

// Job describes the image in bytes, and how often it is written.
type Job struct {
	FileSize int64  `json:"file_size"`
	RawSize  int64  `json:"raw_size"`
	Digest   string `json:"digest"`
	Runs     int    `json:"runs"`
}

// Result is one measurement.
type Result struct {
	Way string `json:"way"`
	// Seconds of the write phase, and of the reading back where there is one.
	Seconds float64 `json:"seconds"`
	Verify  float64 `json:"verify,omitempty"`
	// PeakKiB is the highest resident memory of the process so far.
	PeakKiB int64 `json:"peak_kib,omitempty"`
	// WrittenMiB went to the disk.
	WrittenMiB int64  `json:"written_mib,omitempty"`
	Error      string `json:"error,omitempty"`
}

func say(r Result) {
	b, err := json.Marshal(r)
	if err != nil {
		b = []byte(`{"error":"` + err.Error() + `"}`)
	}
	fmt.Println(Mark + string(b))
}

func measureWrites(ctx context.Context, stateDir string) error {
	b, err := os.ReadFile(filepath.Join(stateDir, JobFile))
	if err != nil {
		return err
	}
	var j Job
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

func eachWay(ctx context.Context, j Job, url string) error {
	begun := time.Now()
	said, err := shell(ctx, "< "+file+" "+unpackTo(target))
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if !strings.Contains(said, fmt.Sprintf("%d bytes", j.RawSize)) {
		return fmt.Errorf("dd printed %q", said)
	}
	say(Result{Way: "zstd -dc | dd", Seconds: took.Seconds(), WrittenMiB: j.RawSize >> 20})
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
func prepare(j Job) error {
	if err := makeExecutable(); err != nil {
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

// serve offers the file by HTTP.
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

// engine is what the installer does, without an identity for the next system.
func engine(ctx context.Context, j Job, name string, open func(context.Context) (io.ReadCloser, error)) (err error) {
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
	say(Result{
		Way:        name,
		Seconds:    got.Write.Seconds(),
		Verify:     got.Verify.Seconds(),
		PeakKiB:    peak / measure.KiB,
		WrittenMiB: got.Written >> 20,
	})
	return nil
}
