package image_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/gpt"
)

var noTime time.Time

func TestWriteMakesADiskThatBoots(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rig){
		"compressed":          func(*rig) {},
		"raw":                 func(r *rig) { r.file, r.format = raw(), image.Raw },
		"without discard":     func(r *rig) { r.disk.NoDiscard = true },
		"discard leaves junk": func(r *rig) { r.disk.NoZero = true },
		"larger disk":         func(r *rig) { r.disk = disktest.New(200 << 20) },
		"unknown file size":   func(r *rig) { r.file = packed(); r.handler = chunked(packed()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			change(r)
			got, err := r.write(t.Context(), t)
			if err != nil {
				t.Fatal(err)
			}
			mustBoot(t, r, got)
			mustPleaseOthers(t, r.disk)
			if got.Digest != sha256.Sum256(raw()) || got.Bytes != rawSize || r.commits != 1 {
				t.Errorf("evidence %+v, %d commits", got, r.commits)
			}
			// Two MiB of zeros, and the zeros behind the data, need no writing on a disk that was zeroed.
			if got.Zeroed != (got.Written < 4<<20) || got.Zeroed == (r.disk.NoDiscard || r.disk.NoZero) {
				t.Errorf("zeroed: %t, written: %d", got.Zeroed, got.Written)
			}
			if headWrites(r.disk) != 2 {
				t.Errorf("the first MiB was written %d times, not zeroed and then written", headWrites(r.disk))
			}
		})
	}
}

// TestNothingIsWrittenWithoutLeave: the last word is asked for when the image has been opened, and before any byte is
// changed.
func TestNothingIsWrittenWithoutLeave(t *testing.T) {
	t.Parallel()
	r := newRig()
	no := errors.New("no")
	asked := 0
	r.job.Begin = func(context.Context) error {
		if asked++; len(r.disk.Writes()) > 0 {
			t.Error("asked too late")
		}
		return no
	}
	if _, err := r.write(t.Context(), t); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	if asked != 1 || len(r.disk.Writes()) > 0 || r.disk.Written() > 0 {
		t.Errorf("asked %d times, and %v was written", asked, r.disk.Writes())
	}
}

// chunked serves without a length.
func chunked(b []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		w.Write(b)
	})
}

func TestProgressGrowsToTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig()
	if _, err := r.write(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	last, stages := 0, ""
	for _, p := range r.progress {
		if p.Percent < last {
			t.Errorf("%d%% (%s) after %d%%", p.Percent, p, last)
		}
		last = p.Percent
		if !strings.HasSuffix(stages, p.Stage+" ") {
			stages += p.Stage + " "
		}
	}
	if last != 100 || stages != "check zero write verify identity commit " {
		t.Errorf("ends at %d%%; stages %q", last, stages)
	}
	p := image.Progress{Stage: "write", Done: 412 << 20, Total: 1024 << 20, Rate: 96 << 20, ETA: 6400 * time.Millisecond}
	if p.String() != "write 412/1024 MiB, 96 MiB/s, ETA 0:06" {
		t.Error(p)
	}
}

// failWrite fails a write that touches the byte.
func failWrite(at int64, err error) func(*rig) {
	return func(r *rig) {
		r.disk.OnWrite = func(b []byte, off int64) (int, error) {
			if off <= at && at < off+int64(len(b)) {
				return 4096, err
			}
			return len(b), nil
		}
	}
}

// failLater fails the second write of the byte.
func failLater(at int64) func(*rig) {
	return func(r *rig) {
		seen := 0
		r.disk.OnWrite = func(b []byte, off int64) (int, error) {
			if off <= at && at < off+int64(len(b)) {
				if seen++; seen == 2 {
					return 512, disktest.ErrIO
				}
			}
			return len(b), nil
		}
	}
}

func failFlush(n int) func(*rig) {
	return func(r *rig) {
		r.disk.OnFlush = func() error {
			if n--; n == 0 {
				return disktest.ErrIO
			}
			return nil
		}
	}
}

// lie changes a byte that is written or read there, from the nth time on, for one time.
func lieWrite(at int64, nth int) func(*rig) {
	return func(r *rig) {
		r.disk.OnWrite = func(b []byte, off int64) (int, error) {
			if off <= at && at < off+int64(len(b)) {
				if nth--; nth == 0 {
					b[at-off] ^= 1
				}
			}
			return len(b), nil
		}
	}
}

func lieRead(at int64) func(*rig) {
	return func(r *rig) {
		r.disk.OnRead = func(b []byte, off int64) error {
			if off <= at && at < off+int64(len(b)) {
				b[at-off] ^= 1
			}
			return nil
		}
	}
}

func failRead(at int64) func(*rig) {
	return func(r *rig) {
		r.disk.OnRead = func(b []byte, off int64) error {
			if off <= at && at < off+int64(len(b)) {
				return disktest.ErrIO
			}
			return nil
		}
	}
}

func status(code int) func(*rig) {
	return func(r *rig) {
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
}

func content(format image.Format, change func(b []byte) []byte) func(*rig) {
	return func(r *rig) {
		r.file, r.format = change(append([]byte{}, raw()...)), format
	}
}

func flip(at int) func(b []byte) []byte {
	return func(b []byte) []byte {
		b[at] ^= 1
		return b
	}
}

func window(b []byte) []byte {
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20))
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	z.Reset(&out)
	// Streamed, so that the window is not bounded by the size of the content.
	for len(b) > 0 {
		n := min(len(b), 1<<20)
		if _, err := z.Write(b[:n]); err != nil {
			panic(err)
		}
		b = b[n:]
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return []byte(out.String())
}

// laterWindow has the window in a frame behind the first.
func laterWindow(b []byte) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return append(z.EncodeAll(b[:len(b)/2], nil), window(b[len(b)/2:])...)
}

const stateAt = (diskSize - 1<<20 - image.StateSize) / (1 << 20) * (1 << 20)

var errTest = errors.New("failed for the test")

// faults are all ways to fail. untouched: nothing may have been written.
var faults = map[string]struct {
	break_    func(*rig)
	want      baremetalv1.Reason
	retryable bool
	untouched bool
}{
	"image has no table":        {content(image.Raw, flip(512)), baremetalv1.Reason_IMAGE_UNSUPPORTED, false, true},
	"image has a damaged table": {content(image.Raw, flip(1024)), baremetalv1.Reason_IMAGE_UNSUPPORTED, false, true},
	"format unknown": {func(r *rig) { r.format = "qcow2" }, baremetalv1.Reason_IMAGE_UNSUPPORTED, false,
		true},
	"sectors of 4 KiB": {func(r *rig) { r.disk.SectorSize = 4096 }, baremetalv1.Reason_IMAGE_UNSUPPORTED,
		false, true},
	"image too small": {func(r *rig) { r.job.RawSize = 4096 }, baremetalv1.Reason_IMAGE_UNSUPPORTED, false,
		true},
	"window too large": {content(image.RawZstd, window), baremetalv1.Reason_IMAGE_UNSUPPORTED, false, true},
	"later window too large": {content(image.RawZstd, laterWindow), baremetalv1.Reason_IMAGE_UNSUPPORTED, false,
		false},
	"no such blob":  {status(404), baremetalv1.Reason_IMAGE_UNAVAILABLE, true, true},
	"server broken": {status(500), baremetalv1.Reason_IMAGE_UNAVAILABLE, true, true},
	"redirected":    {status(302), baremetalv1.Reason_IMAGE_UNAVAILABLE, true, true},
	"disk below the minimum": {func(r *rig) { r.job.MinimumDisk = diskSize + 1 },
		baremetalv1.Reason_IMAGE_TOO_LARGE, false, true},
	"disk without room": {func(r *rig) { r.disk = disktest.New(71 << 20) }, baremetalv1.Reason_IMAGE_TOO_LARGE,
		false, true},
	"image is no zstd": {content(image.RawZstd, func(b []byte) []byte { return b }),
		baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, true},
	"image is shorter than a table": {content(image.Raw, func(b []byte) []byte { return b[:4096] }),
		baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, true},

	"image shorter than declared": {content(image.Raw, func(b []byte) []byte { return b[:len(b)-512] }),
		baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},
	"image longer than declared": {content(image.Raw, func(b []byte) []byte { return append(b, 0) }),
		baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},
	"one bit in the image":     {content(image.Raw, flip(6<<20)), baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},
	"one bit in the boot code": {content(image.Raw, flip(100)), baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},
	"last byte": {content(image.Raw, flip(rawSize-1)), baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false,
		false},
	"compressed stream damaged": {func(r *rig) {
		r.file = append([]byte{}, packed()...)
		r.file[len(r.file)/2] ^= 1
	}, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},
	"compressed stream cut": {func(r *rig) { r.file = packed()[:len(packed())/2] },
		baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},
	"other image": {func(r *rig) { r.job.RawDigest[0] ^= 1 }, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false, false},

	"write at the beginning fails": {failWrite(0, disktest.ErrIO), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"write at the end fails": {failWrite(diskSize-1, disktest.ErrIO), baremetalv1.Reason_DISK_WRITE_ERROR, true,
		false},
	"write of the image fails":    {failWrite(2<<20, disktest.ErrIO), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"write of the image is short": {failWrite(2<<20, nil), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"write of the state fails": {failWrite(stateAt, disktest.ErrIO), baremetalv1.Reason_DISK_WRITE_ERROR, true,
		false},
	"write of the backup fails":      {failLater(diskSize - 512), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"write of the first MiB fails":   {failLater(0), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"write of the first MiB is torn": {failLater(4096), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"disk changes a byte":            {lieWrite(2<<20, 1), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"disk changes a zero":            {lieWrite(6<<20, 1), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"disk changes the backup":        {lieWrite(diskSize-300, 2), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"disk changes the first MiB":     {lieWrite(700, 2), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"disk reads something else":      {lieRead(2 << 20), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"disk cannot be read":            {failRead(5 << 20), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"first MiB cannot be read":       {failRead(0), baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"state file system missing": {func(r *rig) {
		r.job.State = func() (io.ReadCloser, error) { return nil, errTest }
	}, baremetalv1.Reason_EXECUTION_FAILED, true, false},
	"state file system too large": {func(r *rig) {
		r.job.State = func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeros{}, image.StateSize+1)), nil }
	}, baremetalv1.Reason_IMAGE_UNSUPPORTED, false, false},
	"no identity": {func(r *rig) {
		r.job.Identity = func(context.Context) (map[string][]byte, error) { return nil, errTest }
	}, baremetalv1.Reason_EXECUTION_FAILED, true, false},
	"state partition cannot be filled": {func(r *rig) {
		r.job.Fill = func(context.Context, int64, int64, map[string][]byte) error { return errTest }
	}, baremetalv1.Reason_DISK_WRITE_ERROR, true, false},
	"commit cannot be remembered": {func(r *rig) {
		r.job.Committing = func(context.Context, image.Commit) error { return errTest }
	}, baremetalv1.Reason_EXECUTION_FAILED, true, false},
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestEveryFaultLeavesADiskThatDoesNotBoot(t *testing.T) {
	t.Parallel()
	all := faults
	for n := 1; n <= 6; n++ {
		all[fmt.Sprintf("flush %d fails", n)] = struct {
			break_    func(*rig)
			want      baremetalv1.Reason
			retryable bool
			untouched bool
		}{failFlush(n), baremetalv1.Reason_DISK_WRITE_ERROR, true, false}
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			c.break_(r)
			_, err := r.write(t.Context(), t)
			var e *image.Error
			if reasonOf(err) != c.want || !errors.As(err, &e) || e.Retryable != c.retryable {
				t.Fatalf("error %v, reason %s, want %s (retryable: %t)", err, reasonOf(err), c.want, c.retryable)
			}
			if c.untouched {
				if w := r.disk.Writes(); len(w) > 0 {
					t.Errorf("%d writes", len(w))
				}
				return
			}
			mustNotBoot(t, r.disk)
			// The same disk, without the fault, is fine.
			again := newRig()
			again.disk = r.disk.PowerOn()
			got, err := again.write(t.Context(), t)
			if err != nil {
				t.Fatalf("second attempt: %v", err)
			}
			mustBoot(t, again, got)
		})
	}
}

// Whatever the moment of the power cut, and whatever writes the disk's cache loses, only the whole image boots
// afterwards. The next attempt completes.
func TestPowerCutAtAnyByte(t *testing.T) {
	t.Parallel()
	whole := newRig()
	if _, err := whole.write(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	total := whole.disk.Written()
	rng := rand.New(rand.NewPCG(1, 2))
	var cuts []int64
	for at := int64(1); at < total; at += 384<<10 + rng.Int64N(4096) {
		cuts = append(cuts, at)
	}
	for at := total - 2<<20; at <= total; at += 96<<10 + rng.Int64N(512) {
		cuts = append(cuts, at) // the ends
	}
	for i, at := range cuts {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			r := newRig()
			r.disk.CutAt, r.disk.Kept, r.disk.Rand = at, disktest.Kept(i%3), rand.New(rand.NewPCG(uint64(at), 1))
			_, err := r.write(t.Context(), t)
			if reasonOf(err) != baremetalv1.Reason_DISK_WRITE_ERROR {
				t.Fatalf("error %v", err)
			}
			afterCut(t, r)
			again := newRig()
			again.disk = r.disk.PowerOn()
			got, err := again.write(t.Context(), t)
			if err != nil {
				t.Fatal(err)
			}
			mustBoot(t, again, got)
		})
	}
}

// afterCut: a table, at either end, is there only when the image behind it is whole.
func afterCut(t *testing.T, r *rig) {
	t.Helper()
	table, _ := primary(r.disk)
	if table == nil && !hasBackup(r.disk) {
		return
	}
	if !holdsImage(r.disk) || r.commits != 1 {
		t.Errorf("the disk boots and the image is not whole (%d commits)", r.commits)
	}
	err := image.Check(t.Context(), r.disk.PowerOn(), rawSize, sha256.Sum256(raw()), r.commit)
	if table == nil && !errors.Is(err, image.ErrAnother) {
		t.Errorf("without a first MiB, Check: %v", err)
	}
}

func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()
	whole := newRig()
	if _, err := whole.write(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped by request")
	for i := range whole.progress {
		t.Run(fmt.Sprint(i, " ", whole.progress[i].Stage), func(t *testing.T) {
			t.Parallel()
			r := newRig()
			ctx, cancel := context.WithCancelCause(t.Context())
			seen := 0
			r.job.Progress = func(image.Progress) {
				if seen++; seen == i+1 {
					cancel(stopped)
				}
			}
			got, err := r.write(ctx, t)
			if whole.progress[i].Percent == 100 {
				if err != nil {
					t.Fatalf("canceled after the last write: %v", err)
				}
				mustBoot(t, r, got)
				return
			}
			if !errors.Is(err, stopped) {
				t.Fatalf("error %v", err)
			}
			mustNotBootNorCommit(t, r)
		})
	}
}

func mustNotBootNorCommit(t *testing.T, r *rig) {
	t.Helper()
	mustNotBoot(t, r.disk)
	if r.commits > 0 && headWrites(r.disk) > 1 {
		t.Error("canceled and committed")
	}
}

func TestCheckFindsEveryDifference(t *testing.T) {
	t.Parallel()
	r := newRig()
	if _, err := r.write(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(raw())
	for name, at := range map[string]int64{"boot code": 10, "table": 520, "entries": 1100, "image": 3 << 20,
		"end": rawSize - 1} {
		d := r.disk.PowerOn()
		b := make([]byte, 4096)
		d.Durable(b, at/4096*4096)
		b[at%4096] ^= 1
		if _, err := d.WriteAt(b, at/4096*4096); err != nil {
			t.Fatal(err)
		}
		if err := image.Check(t.Context(), d, rawSize, digest, r.commit); !errors.Is(err, image.ErrAnother) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := r.commit
	other.Head = hex.EncodeToString(make([]byte, 32))
	if err := image.Check(t.Context(), r.disk, rawSize, digest, other); !errors.Is(err, image.ErrAnother) {
		t.Errorf("another command's commit: %v", err)
	}
	r.disk.OnRead = func([]byte, int64) error { return disktest.ErrIO }
	if err := image.Check(t.Context(), r.disk, rawSize, digest, r.commit); err == nil || errors.Is(err, image.ErrAnother) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
}

// An image that was made for another size of disk still has that size in its table, until it is fitted.
func TestTableIsFittedToTheDisk(t *testing.T) {
	t.Parallel()
	r := newRig()
	if _, err := r.write(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	_, head := primary(r.disk)
	if got := binary.LittleEndian.Uint64(head[512+32:]); got != diskSize/512-1 {
		t.Errorf("backup header at block %d", got)
	}
	table, _ := primary(r.disk)
	before, err := gpt.Parse(raw()[:gpt.HeadSize], 512)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range before.Partitions() {
		if table.Partitions()[i] != p {
			t.Errorf("partition %d was %+v and is %+v", i+1, p, table.Partitions()[i])
		}
	}
}
