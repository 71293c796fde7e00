// Package sshtest runs a real OpenSSH server for tests: a process of its own on loopback, with its own host keys and
// authorized keys, none of them the machine's.
package sshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// Server is an SSH server that lets one key in, as the user that the test runs as.
type Server struct {
	// Endpoint is host:port.
	Endpoint string
	// HostKey is a line of authorized_keys(5), Fingerprint the same key as "SHA256:…".
	HostKey, Fingerprint string
	// Username and PrivateKey log in.
	Username   string
	PrivateKey []byte
	// Base is an empty directory for runs.
	Base string
}

// Key makes a private key as PEM, and its public half.
func Key(t testing.TB) (private []byte, public ssh.PublicKey) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	public, err = ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), public
}

// Start starts a server; it ends with the test. Runs that are left are none of its business.
func Start(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	hostPrivate, hostPublic := Key(t)
	private, public := Key(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Endpoint: "127.0.0.1:" + testkit.FreePort(t), Fingerprint: ssh.FingerprintSHA256(hostPublic),
		HostKey:  strings.TrimSpace(string(ssh.MarshalAuthorizedKey(hostPublic))),
		Username: me.Username, PrivateKey: private, Base: t.TempDir(),
	}
	write(t, filepath.Join(dir, "host"), string(hostPrivate))
	write(t, filepath.Join(dir, "authorized"), string(ssh.MarshalAuthorizedKey(public)))
	host, port, err := net.SplitHostPort(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "config"), fmt.Sprintf(`ListenAddress %s
Port %s
HostKey %s/host
AuthorizedKeysFile %s/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
`, host, port, dir, dir))
	run(t, filepath.Join(dir, "config"))
	testkit.Eventually(t, 10*time.Second, func() bool { return answers(s.Endpoint) }, "sshd does not listen")
	return s
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func answers(endpoint string) bool {
	c, err := net.DialTimeout("tcp", endpoint, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// privsep is where an sshd of root wants to be locked in (sshd(8), FILES).
const privsep = "/run/sshd"

func run(t testing.TB, config string) {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.MkdirAll(privsep, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start sshd (package openssh-server): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd:\n%s", log.String())
		}
	})
}

// Proxy stands between a client and a server, so that a test can cut the line.
type Proxy struct {
	Endpoint string

	mu      sync.Mutex
	conns   []net.Conn
	blocked bool
}

// NewProxy listens before the server until the test ends.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Endpoint: l.Addr().String()}
	done := make(chan struct{})
	task.Background("proxy", func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(c, to)
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // the accept loop ends with it
		p.Cut(false)
		<-done
	})
	return p
}

func (p *Proxy) serve(c net.Conn, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blocked {
		_ = c.Close() // as a machine that is not there
		return
	}
	var d net.Dialer
	up, err := d.DialContext(context.Background(), "tcp", to)
	if err != nil {
		_ = c.Close()
		return
	}
	p.conns = append(p.conns, c, up)
	copyOne := func(dst, src net.Conn) func() {
		return func() {
			_, _ = io.Copy(dst, src) // ends when either side does
			_ = dst.Close()
		}
	}
	task.Background("proxy up", copyOne(up, c))
	task.Background("proxy down", copyOne(c, up))
}

// Cut ends all connections. block keeps new ones out until Open.
func (p *Proxy) Cut(block bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = block
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// Open lets connections in again.
func (p *Proxy) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = false
}
