// Package kubeadm joins the machine to a Kubernetes cluster by kubeadm, and reads which cluster it is in.
package kubeadm

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Membership is which cluster the machine belongs to, read from what its kubelet was given.
type Membership struct {
	// Joined: the kubelet has credentials of its own.
	Joined bool
	// Server is the API server's URL; CAHashes are "sha256:<hex>" of the public keys that the kubelet trusts.
	Server   string
	CAHashes []string
	// Begun: a join has left its marks and was not finished.
	Begun bool
}

// JoinRequest is the input of kubeadm. The token stands in a file that only root may read, for as long as kubeadm runs.
type JoinRequest struct {
	APIServer, Token, NodeName string
	CAHashes                   []string
	// Dir is where the file is put; it is made with mode 0700.
	Dir string
}

// Where kubeadm keeps what it has been told (kubeadm's constants).
const (
	kubeletConf   = "etc/kubernetes/kubelet.conf"
	bootstrapConf = "etc/kubernetes/bootstrap-kubelet.conf"
	kubeletCA     = "etc/kubernetes/pki/ca.crt"
)

// ErrNoKubeadm is returned when kubeadm is not installed.
var ErrNoKubeadm = errors.New("kubeadm is not installed")

// Joiner joins the machine to a Kubernetes cluster.
type Joiner struct {
	*system.System
	// Program is kubeadm. "": kubeadm, by PATH.
	Program string
}

// Membership reads which cluster the machine is in.
func (j *Joiner) Membership(context.Context) (Membership, error) {
	raw, err := os.ReadFile(j.Path(kubeletConf))
	if errors.Is(err, os.ErrNotExist) {
		return Membership{Begun: j.exists(bootstrapConf) || j.exists(kubeletCA)}, nil
	}
	if err != nil {
		return Membership{}, fmt.Errorf("read kubelet.conf: %w", err)
	}
	m, err := j.parseKubeletConf(raw)
	if err != nil {
		return m, fmt.Errorf("read %s: %w", j.Path(kubeletConf), err)
	}
	return m, nil
}

func (j *Joiner) exists(rel string) bool {
	_, err := os.Lstat(j.Path(rel))
	return err == nil
}

// kubeconfig has the fields that are read of one (client-go, clientcmd/api/v1).
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `yaml:"server"`
			CA     string `yaml:"certificate-authority-data"`
			CAFile string `yaml:"certificate-authority"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
}

func (j *Joiner) parseKubeletConf(raw []byte) (Membership, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(raw, &k); err != nil {
		return Membership{}, err
	}
	if len(k.Clusters) == 0 {
		return Membership{}, errors.New("it names no cluster")
	}
	c := k.Clusters[0].Cluster
	m := Membership{Joined: true, Server: c.Server}
	text, err := base64.StdEncoding.DecodeString(c.CA)
	if err == nil && len(text) == 0 && c.CAFile != "" {
		text, err = os.ReadFile(j.Path(c.CAFile))
	}
	if err != nil || len(text) == 0 {
		return m, err
	}
	m.CAHashes, err = pki.KeyHashes(text)
	return m, err
}

// CanJoin reports whether this process could. Whether kubeadm is there shows when it is needed: it may come later than
// the agent.
func (j *Joiner) CanJoin() bool { return j.Kernel.Euid() == 0 && !j.Installer }

// joinUnit is a transient service for one join, outside the bounds of the agent's own.
func joinUnit(e effect.Cause) string { return "ingot-join-" + e.CommandID + ".service" }

// joinFile holds the token while kubeadm runs.
func joinFile(r JoinRequest, e effect.Cause) string {
	return filepath.Join(r.Dir, e.CommandID+".yaml")
}

// Join runs kubeadm join and returns when it has ended; ctx kills it and all that it has started. The output comes
// without the token. nil means that kubeadm succeeded; the proof is the Membership.
func (j *Joiner) Join(
	ctx context.Context,
	e effect.Cause,
	r JoinRequest,
	output func(stream string, data []byte),
) error {
	kubeadm, err := exec.LookPath(j.kubeadm())
	if err != nil {
		return ErrNoKubeadm
	}
	config, err := JoinConfiguration(r, kubeadmTakes(ctx, kubeadm))
	if err != nil {
		return err
	}
	file := joinFile(r, e)
	if err := writeSecret(file, config); err != nil {
		return fmt.Errorf("write JoinConfiguration: %w", err)
	}
	defer os.Remove(file) //nolint:errcheck // EndJoin removes it too
	name, args := kubeadm, []string{"join", "--config", file}
	if j.RunsSystemd() {
		name, args = "systemd-run", append([]string{
			"--quiet", "--pipe", "--wait", "--collect", "--service-type=exec", "--unit=" + joinUnit(e), "--", kubeadm,
		}, args...)
	}
	return j.runToEnd(ctx, e, exec.Command(name, args...), r.Token,
		output) //nolint:noctx // runToEnd ends it, with its children
}

func (j *Joiner) kubeadm() string {
	if j.Program != "" {
		return j.Program
	}
	return "kubeadm"
}

// runToEnd runs a program whose whole process group ends with ctx, and with this process. Its output comes without the
// secret.
func (j *Joiner) runToEnd(
	ctx context.Context, e effect.Cause, cmd *exec.Cmd, secret string, output func(string, []byte),
) error {
	stdout, stderr := &hiding{stream: "stdout", secret: secret, to: output},
		&hiding{stream: "stderr", secret: secret, to: output}
	defer stdout.flush()
	defer stderr.flush()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// Pdeathsig is about the thread that has started the child: it must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start kubeadm: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		// The group may have ended already.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = j.endUnit(context.WithoutCancel(ctx), e)
	})
	err := cmd.Wait()
	stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("kubeadm join: %w", err)
	}
	return nil
}

// EndJoin makes sure that nothing of the command's join runs any more, and that its file is gone.
func (j *Joiner) EndJoin(ctx context.Context, e effect.Cause, dir string) error {
	if err := j.endUnit(ctx, e); err != nil {
		return err
	}
	if err := os.Remove(joinFile(JoinRequest{Dir: dir}, e)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove JoinConfiguration: %w", err)
	}
	return nil
}

// endUnit stops the transient service. Without systemd the process has ended with the agent that has started it.
func (j *Joiner) endUnit(ctx context.Context, e effect.Cause) error {
	if !j.RunsSystemd() {
		return nil
	}
	out, err := j.Kernel.Run(ctx, "systemctl", "stop", joinUnit(e))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 5 {
		return nil // systemctl(1): no such unit is loaded
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w: %.200s", joinUnit(e), err, out)
	}
	return nil
}

// UndoJoin removes what a join that was not finished has left: kubeadm does not join over it.
func (j *Joiner) UndoJoin(ctx context.Context, e effect.Cause, output func(stream string, data []byte)) error {
	kubeadm, err := exec.LookPath(j.kubeadm())
	if err != nil {
		return ErrNoKubeadm
	}
	name, args := kubeadm, []string{"reset", "--force"}
	if j.RunsSystemd() {
		name, args = "systemd-run",
			append([]string{"--quiet", "--pipe", "--wait", "--collect", "--service-type=exec", "--unit=" + joinUnit(e), "--",
				kubeadm}, args...)
	}
	return j.runToEnd(ctx, e, exec.Command(name, args...), "",
		output) //nolint:noctx // runToEnd ends it, with its children
}

// writeSecret makes a file that only its owner may read, in a directory that only its owner may enter.
func writeSecret(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// hiding passes output on by lines, without the secret. kubeadm does not print it; a program in its place might.
type hiding struct {
	stream, secret string
	to             func(stream string, data []byte)
	rest           []byte
}

func (h *hiding) Write(p []byte) (int, error) {
	h.rest = append(h.rest, p...)
	for {
		i := strings.IndexByte(string(h.rest), '\n')
		if i < 0 && len(h.rest) < 64<<10 {
			return len(p), nil
		}
		if i < 0 {
			i = len(h.rest) - 1
		}
		h.pass(h.rest[:i+1])
		h.rest = h.rest[i+1:]
	}
}

// flush passes on the rest without a line's end.
func (h *hiding) flush() {
	if len(h.rest) > 0 {
		h.pass(h.rest)
		h.rest = nil
	}
}

func (h *hiding) pass(line []byte) {
	text := string(line)
	if h.secret != "" {
		text = strings.ReplaceAll(text, h.secret, "[token]")
	}
	h.to(h.stream, []byte(text))
}
