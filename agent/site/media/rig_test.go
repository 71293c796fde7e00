package media_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/site/media"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/mediaproof"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/uki"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// blob is a file in memory.
type blob struct{ *bytes.Reader }

func (blob) Close() error               { return nil }
func (blob) Wait(context.Context) error { return nil }

// stub is of Debian's package systemd-boot-efi.
const stub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"

const (
	site   = "r42"
	secret = "a secret of this assignment"
)

// rig is a machine behind a BMC, and a site that attaches images to it.
type rig struct {
	*testing.T
	chassis *lab.Memory
	service *lab.Redfish
	server  *media.Server
	keeper  *media.Keeper
	bmcs    *bmc.Provider
	target  provider.Target
	path    string
	boot    media.Boot
	stop    func()

	mu   sync.Mutex
	said []string
}

func newRig(t *testing.T, shape lab.Shape) *rig {
	t.Helper()
	r := &rig{T: t, chassis: &lab.Memory{Info: lab.About{Name: "m-1", UEFI: true}},
		path: filepath.Join(t.TempDir(), "media.json")}
	shape.Slow = 0
	var err error
	r.service, err = lab.StartRedfish(t.Context(), lab.RedfishConfig{
		Chassis: r.chassis, Listen: "127.0.0.1:0", User: "u", Password: "p", Shape: shape, MediaDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.service.Close(); err != nil {
			t.Error(err)
		}
	})
	r.bmcs = bmc.New(bmc.Config{
		Credentials: func(context.Context, provider.Target) (bmc.Credentials, error) {
			return bmc.Credentials{Username: "u", Password: "p", Allowed: []string{"127.0.0.0/8"}}, nil
		},
		Clock: clock.Real(), Log: testkit.Logger(t), Within: 3 * time.Second, Timeout: 10 * time.Second,
	})
	t.Cleanup(func() { r.bmcs.Close(context.Background()) })
	r.target = provider.Target{MachineID: "m-1", BMCEndpoint: r.service.Endpoint()}
	r.boot = media.Boot{
		MachineID: "m-1", OperationID: "op-1", Token: "token-1", Site: "http://10.0.0.1:8080",
		Files: media.Files{Arch: "amd64", Kernel: "kernel", Initrd: "initrd", UKI: "uki", Cmdline: "quiet"},
		Own:   mediaproof.File{Secret: []byte(secret), MACs: []string{"52:54:00:00:00:01"}},
	}
	r.serve()
	r.start()
	return r
}

// serve has a kernel, an initramfs and both in one.
func (r *rig) serve() {
	r.Helper()
	program, err := os.ReadFile(stub)
	if err != nil {
		r.Fatalf("this test needs systemd-boot-efi: %v", err)
	}
	kernel, initrd := bytes.Repeat([]byte("kernel"), 999), bytes.Repeat([]byte("initrd"), 777)
	whole, err := uki.Build(uki.Parts{Stub: program, Linux: kernel, Initrd: initrd, Cmdline: "panic=10"})
	if err != nil {
		r.Fatal(err)
	}
	files := map[string][]byte{"kernel": kernel, "initrd": initrd, "uki": whole}
	r.server, err = media.NewServer(media.ServerConfig{
		Open: func(_ context.Context, digest string) (media.Blob, error) {
			return blob{bytes.NewReader(files[digest])}, nil
		},
		Limit: func(l net.Listener) net.Listener { return l }, Log: testkit.Logger(r.T),
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(background(r.T, r.server.Run))
}

// background runs fn until the returned function is called.
func background(t *testing.T, fn func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	group, _ := task.New(ctx)
	group.Go("background", fn)
	return sync.OnceFunc(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// start is a new process of the site's agent, which has not heard from the controller yet.
func (r *rig) start() {
	r.Helper()
	var err error
	r.keeper, err = media.NewKeeper(media.KeeperConfig{
		Path: r.path, BMCs: r.bmcs, Server: r.server, Clock: clock.Real(), Log: testkit.Logger(r.T),
		Every: 50 * time.Millisecond,
		Say: func(_ context.Context, operationID, line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.said = append(r.said, operationID+" "+line)
		},
	})
	if err != nil {
		r.Fatal(err)
	}
	r.stop = background(r.T, r.keeper.Run)
	r.Cleanup(func() { r.stop() })
}

// boots makes the machine start from its image, or from its disk.
func (r *rig) boots(from bool) {
	var boots []media.Boot
	if from {
		boots = []media.Boot{r.boot}
	}
	r.keeper.Set(site, boots, []provider.Target{r.target})
}

func (r *rig) insert() error {
	var err error
	testkit.Eventually(r.T, 20*time.Second, func() bool {
		_, err = r.keeper.Insert(r.Context(), r.target, effect.Cause{OperationID: "op-1"})
		return err == nil || !strings.Contains(err.Error(), "does not serve images yet")
	}, "images are not served")
	return err
}

func (r *rig) empty(why string) {
	r.Helper()
	testkit.Eventually(r.T, 30*time.Second, func() bool {
		return len(r.service.Attached()) == 0 && r.chassis.Medium() == ""
	}, "the image stays attached %s", why)
}
