package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// origin is a source that can be slow, short, wrong or gone.
type origin struct {
	mu    sync.Mutex
	blobs map[string][]byte
	// asked are the offsets of all calls, by digest.
	asked map[string][]int64
	// before is called before each piece that is given; an error ends the stream.
	before func(sha256 string, at int64) error
}

func newOrigin() *origin { return &origin{blobs: map[string][]byte{}, asked: map[string][]int64{}} }

func (o *origin) add(data []byte) string {
	sum := sha256.Sum256(data)
	o.blobs[hex.EncodeToString(sum[:])] = data
	return hex.EncodeToString(sum[:])
}

func (o *origin) calls(sha256 string) []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]int64(nil), o.asked[sha256]...)
}

const piece = 32 << 10

func (o *origin) fetch(_ context.Context, sha256 string, offset int64, to Sink) error {
	o.mu.Lock()
	o.asked[sha256] = append(o.asked[sha256], offset)
	data, ok := o.blobs[sha256]
	o.mu.Unlock()
	if !ok {
		return fmt.Errorf("origin: %w", ErrNotFound)
	}
	if err := to.Begin(int64(len(data))); err != nil {
		return err
	}
	for at := offset; at < int64(len(data)); at += piece {
		if o.before != nil {
			if err := o.before(sha256, at); err != nil {
				return err
			}
		}
		if _, err := to.Write(data[at:min(at+piece, int64(len(data)))]); err != nil {
			return err
		}
	}
	return nil
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b)
	return b
}

func open(t *testing.T, dir string, o *origin, maxBytes int64) *Cache {
	t.Helper()
	return openAt(t, Config{Dir: dir, MaxBytes: maxBytes, Source: o.fetch, Retry: time.Millisecond})
}

func openAt(t *testing.T, cfg Config) *Cache {
	t.Helper()
	cfg.Log = testkit.Logger(t)
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func read(t *testing.T, c *Cache, sha256 string) []byte {
	t.Helper()
	b, err := c.Open(t.Context(), sha256)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	data, err := io.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestManyReadersOneFetch(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	want := random(1 << 20)
	sum := o.add(want)
	c := open(t, t.TempDir(), o, 0)
	g, _ := task.New(t.Context())
	for range 32 {
		g.Go("reader", func(ctx context.Context) error {
			b, err := c.Open(ctx, sum)
			if err != nil {
				return err
			}
			defer b.Close()
			got, err := io.ReadAll(b)
			if err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("%d other bytes", len(got))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := o.calls(sum); len(got) != 1 {
		t.Errorf("%d fetches", len(got))
	}
	b, err := c.Open(t.Context(), sum)
	if err != nil || b.File() == nil {
		t.Fatalf("a complete blob is no file: %v", err)
	}
	if _, err := b.Seek(-10, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if tail, err := io.ReadAll(b); err != nil || !bytes.Equal(tail, want[len(want)-10:]) {
		t.Errorf("after a seek: %x, %v", tail, err)
	}
	if _, err := b.Seek(-1, io.SeekStart); err == nil {
		t.Error("a seek before the start is taken")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Open(t.Context(), "../../etc/passwd"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a name that is no digest: %v", err)
	}
}

func TestABlobIsReadWhileItComesButNotItsEnd(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	want := random(10 * piece)
	sum := o.add(want)
	reached, goOn := make(chan struct{}), make(chan struct{})
	o.before = func(_ string, at int64) error {
		if at == 9*piece {
			close(reached)
			<-goOn
		}
		return nil
	}
	c := open(t, t.TempDir(), o, 0)
	b, err := c.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	<-reached
	got := make([]byte, len(want)-hold)
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want[:len(got)]) {
		t.Fatalf("the part that is here: %v", err)
	}
	if b.File() != nil {
		t.Error("an incomplete blob is a file")
	}
	// The next byte is here, but within the bytes that are held back.
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	b.ctx = short
	if n, err := b.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d bytes of the end before the digest is known, %v", n, err)
	}
	b.ctx = t.Context()
	close(goOn)
	if rest, err := io.ReadAll(b); err != nil || !bytes.Equal(rest, want[len(got):]) {
		t.Errorf("the rest: %d bytes, %v", len(rest), err)
	}
}

func TestAWrongBlobNeverEnds(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	right := random(5 * piece)
	sum := o.add(right)
	wrong := bytes.Clone(right)
	wrong[len(wrong)-1] ^= 1
	o.blobs[sum] = wrong
	opened := make(chan struct{})
	o.before = func(_ string, at int64) error {
		if at == 4*piece {
			<-opened
		}
		return nil
	}
	dir := t.TempDir()
	now := clock.NewFake(time.Unix(0, 0))
	c := openAt(t, Config{Dir: dir, Source: o.fetch, Clock: now})
	b, err := c.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	close(opened)
	got, err := io.ReadAll(b)
	if !errors.Is(err, ErrCorrupt) || len(got) > len(right)-hold {
		t.Errorf("%d bytes of a wrong blob, %v", len(got), err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return len(names(t, dir)) == 0 }, "left behind: %v", names(t, dir))
	o.mu.Lock()
	o.blobs[sum] = right
	o.mu.Unlock()
	if _, err := c.Open(t.Context(), sum); !errors.Is(err, ErrCorrupt) {
		t.Errorf("asked again at once: %v", err)
	}
	now.Advance(c.cfg.Distrust)
	if !bytes.Equal(read(t, c, sum), right) {
		t.Error("the right blob does not take the place of the wrong one")
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestALostSourceIsContinued(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	want := random(20 * piece)
	sum := o.add(want)
	var losses int
	o.before = func(_ string, at int64) error {
		if at == int64(4*(losses+1))*piece && losses < 4 {
			losses++
			return errors.New("lost")
		}
		return nil
	}
	c := open(t, t.TempDir(), o, 0)
	if !bytes.Equal(read(t, c, sum), want) {
		t.Error("other bytes")
	}
	if got := fmt.Sprint(o.calls(sum)); got != fmt.Sprint([]int64{0, 4 * piece, 8 * piece, 12 * piece, 16 * piece}) {
		t.Errorf("asked from %v", got)
	}
}

func TestSourcesThatLie(t *testing.T) {
	t.Parallel()
	for what, lie := range map[string]func(n int, to Sink) error{
		"another size later": func(n int, to Sink) error { return to.Begin(int64(100 + n)) },
		"more than its size": func(_ int, to Sink) error {
			if err := to.Begin(3); err != nil {
				return err
			}
			_, err := to.Write([]byte("four"))
			return err
		},
		"bytes before the size": func(_ int, to Sink) error { _, err := to.Write([]byte("x")); return err },
		"a negative size":       func(_ int, to Sink) error { return to.Begin(-5) },
	} {
		n := 0
		c, err := New(Config{Dir: t.TempDir(), Log: testkit.Logger(t), Retry: time.Millisecond,
			Source: func(_ context.Context, _ string, _ int64, to Sink) error {
				n++
				return lie(n, to)
			}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Open(t.Context(), newOrigin().add([]byte(what)))
		if err == nil {
			_, err = io.ReadAll(b)
			_ = b.Close()
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestANewProcessGoesOnWhereTheOldOneEnded(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	want := random(20 * piece)
	sum := o.add(want)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sum+partSuffix), want[:7*piece], 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, o, 0)
	if !bytes.Equal(read(t, c, sum), want) || fmt.Sprint(o.calls(sum)) != fmt.Sprint([]int64{7 * piece}) {
		t.Errorf("asked from %v", o.calls(sum))
	}
	again := open(t, dir, newOrigin(), 0)
	if !bytes.Equal(read(t, again, sum), want) {
		t.Error("a complete file is not taken over")
	}
}

func TestADamagedPartIsNotTheSourcesFault(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	want := random(20 * piece)
	sum := o.add(want)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sum+partSuffix), make([]byte, 7*piece), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, o, 0)
	b, err := c.Open(t.Context(), sum)
	if err == nil {
		_, err = io.ReadAll(b)
		_ = b.Close()
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("zeros in front of the rest: %v", err)
	}
	if !bytes.Equal(read(t, c, sum), want) {
		t.Error("not fetched anew at once")
	}
}

func TestADamagedFileIsFetchedAgain(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	want := random(3 * piece)
	sum := o.add(want)
	dir := t.TempDir()
	damaged := bytes.Clone(want)
	damaged[5] ^= 1
	if err := os.WriteFile(filepath.Join(dir, sum), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, o, 0)
	if !bytes.Equal(read(t, c, sum), want) || len(o.calls(sum)) != 1 {
		t.Errorf("%d fetches", len(o.calls(sum)))
	}
}

func TestNoSuchBlob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir, newOrigin(), 0)
	if _, err := c.Open(t.Context(), newOrigin().add([]byte("x"))); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return len(names(t, dir)) == 0 }, "a part is left behind")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(t.Context(), newOrigin().add([]byte("x"))); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestWhatIsUsedLeastGoesFirst(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	var sums []string
	for i := range 5 {
		sums = append(sums, o.add(random(10*piece+i)))
	}
	c := open(t, t.TempDir(), o, 31*piece)
	read(t, c, sums[0])
	read(t, c, sums[1])
	read(t, c, sums[2])
	read(t, c, sums[0]) // used again
	c.Want([]string{sums[1]})
	read(t, c, sums[3]) // costs 2: 1 is wanted, 0 was used later
	held, err := c.Open(t.Context(), sums[0])
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	read(t, c, sums[4]) // costs 3: 0 is open
	for i, want := range []int{1, 1, 1, 1, 1} {
		if got := len(o.calls(sums[i])); got != want {
			t.Errorf("blob %d was fetched %d times", i, got)
		}
	}
	for i, here := range []bool{true, true, false, false, true} {
		if _, err := os.Stat(c.path(sums[i])); (err == nil) != here {
			t.Errorf("blob %d is here: %v", i, err == nil)
		}
	}
	if c.Usage() > 31*piece {
		t.Errorf("%d bytes of %d", c.Usage(), 31*piece)
	}
	c.Want(sums[:2])
	held4, err := c.Open(t.Context(), sums[4])
	if err != nil {
		t.Fatal(err)
	}
	defer held4.Close()
	if b, err := c.Open(t.Context(), sums[2]); !errors.Is(err, ErrFull) {
		t.Errorf("a blob found room where there is none: %v, %v", b, err)
	}
}

func TestWantedBlobsAreFetchedAhead(t *testing.T) {
	t.Parallel()
	o := newOrigin()
	a, b := o.add(random(piece)), o.add(random(2*piece))
	dir := t.TempDir()
	c := open(t, dir, o, 0)
	c.Want([]string{a, b})
	testkit.Eventually(t, 10*time.Second, func() bool { return len(o.calls(b)) == 1 && len(names(t, dir)) == 2 },
		"not fetched")
}

// TestACrashInEveryPlace ends the fill at each failpoint, as a kill would, and opens the directory again.
func TestACrashInEveryPlace(t *testing.T) {
	for _, point := range []string{"site.blob-after-part", "site.blob-after-rename"} {
		o := newOrigin()
		want := random(5 * piece)
		sum := o.add(want)
		dir := t.TempDir()
		scope := failpoint.NewScope()
		scope.Set(point, failpoint.Error().At(1))
		crashed, err := New(Config{Dir: dir, Source: o.fetch, Log: testkit.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		e := newEntry(sum, crashed.path(sum))
		crashed.fill(failpoint.With(t.Context(), scope), e)
		if !e.failed() {
			t.Errorf("%s: not passed", point)
		}
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
		c := open(t, dir, o, 0)
		if !bytes.Equal(read(t, c, sum), want) {
			t.Errorf("%s: other bytes", point)
		}
		if got := names(t, dir); len(got) != 1 || got[0] != sum {
			t.Errorf("%s: %v", point, got)
		}
	}
}
