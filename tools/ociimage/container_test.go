package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"golang.org/x/sys/unix"
)

// capabilityNumbers are those of capabilities(7) that a container keeps.
var capabilityNumbers = map[string]uintptr{"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "NET_RAW": unix.CAP_NET_RAW}

// container is a service of deploy/compose.yaml as an engine runs it: the unpacked root of its image, with its volumes,
// its configurations, its user, and the capabilities that it keeps.
type container struct {
	t       testing.TB
	root    string
	image   imageConfig
	service types.ServiceConfig
}

// newContainer mounts everything. secrets are the contents of the service's secrets, by name.
func newContainer(
	t *testing.T,
	p *types.Project,
	kind string,
	s types.ServiceConfig,
	secrets map[string]string,
) *container {
	t.Helper()
	c := &container{t: t, root: unpack(t, kind), image: configOf(t, kind), service: s}
	c.mount(c.root, "/", unix.MS_BIND, "")
	t.Cleanup(func() {
		// All of it, or nothing of what is mounted may be removed with the directory.
		if err := unix.Unmount(c.root, unix.MNT_DETACH); err != nil {
			panic(err)
		}
	})
	c.file("/etc/hosts", "127.0.0.1 localhost postgres "+settings["INGOT_NAME"]+"\n")
	for _, config := range s.Configs {
		c.file(config.Target, p.Configs[config.Source].Content)
	}
	for _, secret := range s.Secrets {
		c.file(secret.Target, secrets[secret.Source])
	}
	for _, v := range s.Volumes {
		c.volume(v)
	}
	if err := os.MkdirAll(filepath.Join(c.root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.mount("proc", "/proc", 0, "")
	for _, path := range s.Tmpfs {
		c.mount("tmpfs", path, 0, "mode=1777")
	}
	if s.ReadOnly {
		c.mount("", "/", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return c
}

func (c *container) mount(source, path string, flags uintptr, data string) {
	c.t.Helper()
	kind := ""
	if flags == 0 {
		kind = source
	}
	if err := unix.Mount(source, filepath.Join(c.root, path), kind, flags, data); err != nil {
		c.t.Fatalf("mount %s at %s: %v", source, path, err)
	}
}

func (c *container) file(path, content string) {
	c.t.Helper()
	to := filepath.Join(c.root, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// volume mounts a directory of the host, or a volume. One that is new has the owner of the image's directory.
func (c *container) volume(v types.ServiceVolumeConfig) {
	c.t.Helper()
	to := filepath.Join(c.root, v.Target)
	if err := os.MkdirAll(to, 0o755); err != nil {
		c.t.Fatal(err)
	}
	source := v.Source
	if v.Type == "volume" {
		info, err := os.Stat(to)
		if err != nil {
			c.t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		source = c.t.TempDir()
		if err := errors.Join(os.Chown(source, int(owner.Uid), int(owner.Gid)), os.Chmod(source, info.Mode())); err != nil {
			c.t.Fatal(err)
		}
	}
	c.mount(source, v.Target, unix.MS_BIND, "")
	if v.ReadOnly {
		c.mount("", v.Target, unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
}

// command is a program of the image as the service's user.
func (c *container) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = c.image.Config.WorkingDir
	cmd.Env = slices.Clone(c.image.Config.Env)
	for key, value := range c.service.Environment {
		cmd.Env = append(cmd.Env, key+"="+*value)
	}
	uid, gid, _ := strings.Cut(c.image.Config.User, ":")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root,
		Credential: &syscall.Credential{Uid: number(c.t, uid), Gid: number(c.t, gid)}}
	return cmd
}

func number(t testing.TB, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// start starts a command with no more capabilities than the service keeps. done has its end.
func (c *container) start(cmd *exec.Cmd) (done <-chan error, err error) {
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which cannot get them back, ends with the goroutine
		err := c.limit()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// limit does to this thread what cap_drop: [ALL], cap_add and no-new-privileges say.
func (c *container) limit() error {
	var keep []uintptr
	for _, name := range c.service.CapAdd {
		keep = append(keep, capabilityNumbers[name])
	}
	for n := uintptr(0); n <= unix.CAP_LAST_CAP; n++ {
		// Root's own are needed until the program starts: it has another user.
		if !slices.Contains(keep, n) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("drop capability %d: %w", n, err)
			}
		}
	}
	if slices.Contains(c.service.SecurityOpt, "no-new-privileges:true") {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}

// try runs a program of the image to its end.
func (c *container) try(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := c.command(c.t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	done, err := c.start(cmd)
	if err == nil {
		err = <-done
	}
	return strings.TrimSpace(out.String()), err
}

func (c *container) must(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// entry is what a run with these arguments starts: `docker compose run SERVICE ARGUMENTS`, or the image's own.
func (c *container) entry(args ...string) []string {
	if len(args) == 0 {
		args = c.image.Config.Cmd
	}
	return slices.Concat(c.image.Config.Entrypoint, args)
}

// output is what a program has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// up runs what the image runs. stop asks it to end, and holds that it ends well.
func (c *container) up() (pid int, stop func()) {
	c.t.Helper()
	said := &output{}
	cmd := c.command(context.Background(), c.entry()...)
	cmd.Stdout, cmd.Stderr = said, said
	done, err := c.start(cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	ended := false
	c.t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			<-done
		}
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", c.service.Name, said)
		}
	})
	return cmd.Process.Pid, func() {
		c.t.Helper()
		if err := cmd.Process.Signal(unix.SignalNum(c.image.Config.StopSignal)); err != nil {
			c.t.Error(err)
		}
		if err := <-done; err != nil {
			c.t.Errorf("%s: %v", c.service.Name, err)
		}
		ended = true
	}
}

// status holds lines of /proc/PID/status.
func status(t *testing.T, pid int, want map[string]string) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range want {
		if !strings.Contains(string(raw), "\n"+key+":\t"+value) {
			t.Errorf("%s is not %s:\n%s", key, value, raw)
		}
	}
}

// openDatabase makes what the image of Postgres makes, on the server of INGOT_TEST_DATABASE_URL, and leads the port of
// Postgres to it.
func openDatabase(t *testing.T, s types.ServiceConfig) {
	t.Helper()
	server, err := url.Parse(os.Getenv("INGOT_TEST_DATABASE_URL"))
	if err != nil || server.Query().Get("host") == "" {
		t.Fatalf("INGOT_TEST_DATABASE_URL names no socket (%v); run make test-oci", err)
	}
	user, password := *s.Environment["POSTGRES_USER"], *s.Environment["POSTGRES_PASSWORD"]
	database := *s.Environment["POSTGRES_DB"]
	own := server.User.Username() == user // as those of make test-oci are
	server.Path = "/postgres"
	sql := func(text string) {
		out, err := exec.Command("psql", "--quiet", "--dbname", server.String(), "--command", text).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", text, err, out)
		}
	}
	drop := func() { sql("DROP DATABASE IF EXISTS " + database + " WITH (FORCE)") }
	drop()
	if own {
		sql(fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", user, password))
	} else {
		sql(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", user, password))
		t.Cleanup(func() { sql("DROP ROLE " + user) })
	}
	sql(fmt.Sprintf("CREATE DATABASE %s OWNER %s", database, user))
	t.Cleanup(drop)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:5432")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go forward(l, filepath.Join(server.Query().Get("host"), ".s.PGSQL."+server.Query().Get("port")))
}

func forward(l net.Listener, socket string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.UnixConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}
