package kubeadm

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// fakeKubeadm is a kubeadm that runs the script: $ROOT is the machine's.
func fakeKubeadm(t *testing.T, script string) (j *Joiner, root string) {
	t.Helper()
	root = t.TempDir()
	path := filepath.Join(root, "kubeadm")
	text := fmt.Sprintf(
		"#!/bin/sh\nROOT=%s\necho \"$*\" >>$ROOT/calls\n[ \"$1\" = version ] && { echo v1.30.1; exit 0; }\n%s\n", root,
		script)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Joiner{System: system.NewSystem(root, false, slog.Default()), Program: path}, root
}

// aCA is some CA in PEM.
func aCA(t *testing.T) (text []byte, hashes []string) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	hashes, err := pki.KeyHashes(text)
	if err != nil {
		t.Fatal(err)
	}
	return text, hashes
}

func putKubeletConf(t *testing.T, root, text string) {
	t.Helper()
	path := filepath.Join(root, "etc/kubernetes/kubelet.conf")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestMembership(t *testing.T) {
	l, root := fakeKubeadm(t, "")
	ca, hashes := aCA(t)
	m, err := l.Membership(t.Context())
	if err != nil || m.Joined || m.Begun {
		t.Fatalf("an untouched machine: %+v %v", m, err)
	}
	putKubeletConf(t, root, "clusters:\n- cluster: {server: 'https://api:6443', certificate-authority-data: "+
		base64.StdEncoding.EncodeToString(ca)+"}\n")
	m, err = l.Membership(t.Context())
	if err != nil || !m.Joined || m.Server != "https://api:6443" || !slices.Equal(m.CAHashes, hashes) {
		t.Errorf("a member: %+v %v", m, err)
	}
	for _, bad := range []string{"clusters: []", "{", "clusters:\n- cluster: {certificate-authority-data: '%'}"} {
		putKubeletConf(t, root, bad)
		if _, err := l.Membership(t.Context()); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if err := os.Rename(filepath.Join(root, "etc/kubernetes/kubelet.conf"),
		filepath.Join(root, "etc/kubernetes/bootstrap-kubelet.conf")); err != nil {
		t.Fatal(err)
	}
	if m, err = l.Membership(t.Context()); err != nil || m.Joined || !m.Begun {
		t.Errorf("a join that was cut short: %+v %v", m, err)
	}
}

// output collects the output of kubeadm.
type kubeadmOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *kubeadmOutput) add(_ string, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
}

func (o *kubeadmOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

const joinToken = "abcdef.0123456789abcdef"

func request(root string, hashes []string) JoinRequest {
	return JoinRequest{APIServer: "10.0.0.1:6443", Token: joinToken, NodeName: "m-1", CAHashes: hashes,
		Dir: filepath.Join(root, "join")}
}

// TestJoinHidesTheToken: it is in one file, that only root may read, for as long as kubeadm runs; neither in arguments
// nor in the output.
func TestJoinHidesTheToken(t *testing.T) {
	l, root := fakeKubeadm(t,
		`stat -c '%a %a' "$3" >$ROOT/mode; cp "$3" $ROOT/seen; tr '\0' ' ' </proc/$$/cmdline >$ROOT/argv
grep token: "$3"; echo "half `+joinToken+`" >&2; printf 'no newline `+joinToken+`'`)
	_, hashes := aCA(t)
	var out kubeadmOutput
	if err := l.Join(t.Context(), effect.Cause{CommandID: "c-1"}, request(root, hashes), out.add); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), joinToken) || strings.Count(out.String(), "[token]") != 3 {
		t.Errorf("passed on was %q", out.String())
	}
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if read("mode") != "600 600\n" || strings.Contains(read("argv"), "0123456789abcdef") ||
		strings.Contains(read("calls"), "0123456789abcdef") {
		t.Errorf("the file has mode %q, the arguments were %q", read("mode"), read("argv"))
	}
	for _, want := range []string{"v1beta3", "JoinConfiguration", joinToken, "10.0.0.1:6443", hashes[0], "name: m-1"} {
		if !strings.Contains(read("seen"), want) {
			t.Errorf("%s is not in the configuration:\n%s", want, read("seen"))
		}
	}
	if left, err := filepath.Glob(filepath.Join(root, "join/*")); err != nil || len(left) > 0 {
		t.Errorf("left is %v (%v)", left, err)
	}
}

// TestJoinEnds: its end stops all that it has started, and its failure is its exit code.
func TestJoinEnds(t *testing.T) {
	l, root := fakeKubeadm(t, `sleep 600 & echo $! >$ROOT/child.new; mv $ROOT/child.new $ROOT/child; wait`)
	_, hashes := aCA(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	done := make(chan error, 1)
	var out kubeadmOutput
	task.Background("join", func() { done <- l.Join(ctx, effect.Cause{CommandID: "c-1"}, request(root, hashes), out.add) })
	var child []byte
	testkit.Eventually(t, 30*time.Second, func() bool {
		var err error
		child, err = os.ReadFile(filepath.Join(root, "child"))
		return err == nil
	}, "kubeadm was not started")
	cancel(stop)
	if err := <-done; !errors.Is(err, stop) {
		t.Errorf("it ended with %v", err)
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, "what kubeadm has started runs on")

	l, root = fakeKubeadm(t, `exit 3`)
	if err := l.Join(t.Context(), effect.Cause{CommandID: "c-2"}, request(root, hashes), out.add); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a kubeadm that fails: %v", err)
	}
	none := &Joiner{System: system.NewSystem(root, false, slog.Default()), Program: filepath.Join(root, "nowhere")}
	if err := none.Join(t.Context(), effect.Cause{CommandID: "c-3"}, request(root, hashes), out.add); !errors.Is(err,
		ErrNoKubeadm) {
		t.Errorf("no kubeadm: %v", err)
	}
	if err := l.Join(
		t.Context(),
		effect.Cause{CommandID: "c-4"},
		request(root, nil),
		out.add,
	); !errors.Is(
		err,
		effect.ErrInvalid,
	) {
		t.Errorf("no CA: %v", err)
	}
}

// TestEndJoinTidies: a file that a dead agent has left does not stay.
func TestEndJoinTidies(t *testing.T) {
	l, root := fakeKubeadm(t, "")
	dir := filepath.Join(root, "join")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c-1.yaml")
	if err := os.WriteFile(file, []byte(joinToken), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.EndJoin(t.Context(), effect.Cause{CommandID: "c-1"}, dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}
