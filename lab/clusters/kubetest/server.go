// Package kubetest runs a kube-apiserver on an etcd, for tests. There is no controller manager, scheduler or kubelet: a
// test that needs their work does it through the API.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
)

// Env names the directory with kube-apiserver and kubeadm; `make test-clusters` sets it.
const Env = "INGOT_TEST_KUBE"

// startTime is how long an API server may take to be ready on a machine that has other things to do.
const startTime = 3 * time.Minute

// Server is one cluster.
type Server struct {
	// URL is the API server's base.
	URL   string
	CA    *Authority
	Admin *API
	t     testing.TB
}

// Program finds a program of the cluster's version.
func Program(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv(Env), name)
	if _, err := os.Stat(path); os.Getenv(Env) == "" || err != nil {
		t.Fatalf("%s must name the directory with %s: run `make test-clusters`", Env, name)
	}
	return path
}

// Start starts a cluster that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	dir := testkit.TempDir(t)
	ca := NewAuthority(t, "test cluster")
	s := &Server{t: t, CA: ca}
	port := testkit.FreePort(t)
	s.URL = "https://127.0.0.1:" + port
	etcd := startEtcd(t, filepath.Join(dir, "etcd"))
	args := append(ca.flags(t, dir),
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--enable-bootstrap-token-auth=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--endpoint-reconciler-type=none",
		"--allow-privileged=true",
		// Without a controller manager there are no service accounts for pods.
		"--disable-admission-plugins=ServiceAccount", "--enable-admission-plugins=NodeRestriction", "--cert-dir="+dir,
	)
	run(t, filepath.Join(dir, "kube-apiserver.log"), Program(t, "kube-apiserver"), args...)
	cert, key := ca.Client(t, "admin", "system:masters")
	s.Admin = NewAPI(t, s.URL, ca.PEM, cert, key)
	testkit.Eventually(t, startTime, func() bool {
		code, _ := s.Admin.Try(http.MethodGet, "/readyz", "", nil)
		return code == http.StatusOK
	}, "the API server is not ready; its log is in %s", dir)
	return s
}

func startEtcd(t testing.TB, dir string) string {
	t.Helper()
	client, peer := "http://127.0.0.1:"+testkit.FreePort(t), "http://127.0.0.1:"+testkit.FreePort(t)
	run(t, dir+".log", "etcd", "--data-dir="+dir, "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync")
	return client
}

// run runs a server until the test ends.
func run(t testing.TB, logFile, name string, args ...string) {
	t.Helper()
	out, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		err := errors.Join(cmd.Process.Kill(), ended(cmd), out.Close())
		if t.Failed() {
			text, _ := os.ReadFile(logFile)
			t.Logf("%s (%v) said at its end:\n%s", name, err, tail(text))
		}
	})
}

// ended waits for a process that was killed.
func ended(cmd *exec.Cmd) error {
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

func tail(text []byte) []byte { return text[max(0, len(text)-4000):] }
