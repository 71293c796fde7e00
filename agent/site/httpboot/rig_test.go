package httpboot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/uki"
)

var cardOne, cardTwo = segment.MAC{2, 0, 0, 0, 0, 1}, segment.MAC{2, 0, 0, 0, 0, 2}

// rig is a boot server on loopback whose controller is a map.
type rig struct {
	*Server
	t     testing.TB
	cache *cache.Cache

	mu    sync.Mutex
	blobs map[string][]byte
	// hold blocks the source before it sends the last byte, when it isn't nil.
	hold  chan struct{}
	vouch func(*fleetv1.VouchInstallerRequest) error
	// owner of 127.0.0.1.
	owner segment.MAC
}

func newRig(t testing.TB, edit func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, blobs: map[string][]byte{}, owner: cardOne}
	var err error
	r.cache, err = cache.New(cache.Config{Dir: t.TempDir(), Source: r.fetch, Log: testkit.Logger(t),
		Retry: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Segment: segment.Segment{
			Name: "test", Interface: "lo", Address: netip.MustParsePrefix("127.0.0.1/8"), Discovery: segment.DiscoveryReport,
		},
		Blobs: r.cache.Open, Log: testkit.Logger(t), Vouch: r.certify,
		Owner: func(netip.Addr) (segment.MAC, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.owner, r.owner != segment.MAC{}
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	r.Server = New(cfg)
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g, _ := task.New(ctx)
	g.Go("server", r.Run)
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(g.Wait(), r.cache.Close()); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return r
}

func (r *rig) add(data []byte) string {
	sum := sha256.Sum256(data)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[hex.EncodeToString(sum[:])] = data
	return hex.EncodeToString(sum[:])
}

func (r *rig) fetch(ctx context.Context, sha256 string, offset int64, to cache.Sink) error {
	r.mu.Lock()
	data, ok := r.blobs[sha256]
	hold := r.hold
	r.mu.Unlock()
	if !ok {
		return cache.ErrNotFound
	}
	if err := to.Begin(int64(len(data))); err != nil {
		return err
	}
	if _, err := to.Write(data[offset : len(data)-1]); err != nil {
		return err
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	_, err := to.Write(data[len(data)-1:])
	return err
}

func (r *rig) certify(_ context.Context, req *fleetv1.VouchInstallerRequest) (*fleetv1.VouchInstallerResponse, error) {
	if r.vouch != nil {
		if err := r.vouch(req); err != nil {
			return nil, err
		}
	}
	return &fleetv1.VouchInstallerResponse{AgentId: "a-1", MachineId: req.GetMachineId(),
		OperationId: req.GetOperationId()}, nil
}

// answer is a response that was read to its end.
type answer struct {
	Status        string
	StatusCode    int
	ContentLength int64
	Header        http.Header
}

// do makes a request and returns the answer with its body.
func (r *rig) do(method, path string, headers ...string) (answer, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.Base()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.Status, resp.StatusCode, resp.ContentLength, resp.Header}, body
}

func (r *rig) want(method, path string, status int) {
	r.t.Helper()
	if resp, body := r.do(method, path); resp.StatusCode != status {
		r.t.Errorf("%s %s: %s, want %d (%.80s)", method, path, resp.Status, status, body)
	}
}

// bootable is a view in which card one boots the installer by token "tok".
func (r *rig) bootable() View {
	kernel, initrd := bytes.Repeat([]byte("kernel"), 40_000), bytes.Repeat([]byte("initrd"), 50_000)
	image := r.uki()
	v := View{
		Assignments: []segment.Assignment{{
			Segment: "test", MAC: cardOne, MachineID: "m-1", OperationID: "op-1", Mode: segment.BootInstaller, Token: "tok",
		}, {Segment: "test", MAC: cardTwo, MachineID: "m-2", Mode: segment.BootDisk, Token: "old"}},
		Installers: []Installer{{
			Arch: "amd64", Kernel: r.add(kernel), Initrd: r.add(initrd), UKI: r.add(image), Cmdline: "console=ttyS0\npanic=10",
		}},
		Controllers: []string{"127.0.0.1:1"},
	}
	v.Blobs = []string{v.Installers[0].Kernel, v.Installers[0].Initrd}
	return v
}

// uki is a unified kernel image around a program that does nothing.
func (r *rig) uki() []byte {
	r.t.Helper()
	image, err := uki.Build(uki.Parts{Stub: stub(), Linux: bytes.Repeat([]byte("L"), 200_000), Initrd: []byte("I"),
		Cmdline: "quiet ingot.role=installer"})
	if err != nil {
		r.t.Fatal(err)
	}
	return image
}
