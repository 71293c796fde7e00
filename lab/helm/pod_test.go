//go:build helm

package helm

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/harness"
)

// pod is a pod's only container as a process: the root of its image, with the pod's volumes at their paths, the pod's
// user, and no capability. It shares the network of this machine; an address of the loopback is its own.
type pod struct {
	p                         *place
	t                         *testing.T
	name, address, dir, root  string
	spec, container           object
	user, group, supplemental uint32
	mounts                    []string
	cmd                       *exec.Cmd
	out                       testkit.Buffer
	done                      chan struct{}
	err                       error
}

const podsPath = "/api/v1/namespaces/" + namespace + "/pods"

// newPod makes the pod at the API server, whose admission checks its rights, and what a kubelet makes before a start.
func (p *place) newPod(name, address string, spec object, meta any) *pod {
	p.t.Helper()
	labels, _ := meta.(object)["labels"].(object)
	p.Admin.Create(podsPath, object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": labels}, "spec": spec,
	})
	containers, _ := spec["containers"].([]any)
	if len(containers) != 1 {
		p.t.Fatalf("%d containers", len(containers))
	}
	p.made++
	x := &pod{p: p, t: p.t, name: name, address: address, spec: spec, container: containers[0].(object),
		dir: filepath.Join(p.dir, fmt.Sprintf("pod-%d", p.made)), done: make(chan struct{})}
	x.root = filepath.Join(x.dir, "root")
	p.t.Cleanup(x.remove)
	security := func(key string) uint32 {
		n, ok := kubetest.In(spec, "securityContext", key).(float64)
		if !ok {
			p.t.Fatalf("the pod has no %s", key)
		}
		return uint32(n)
	}
	x.user, x.group, x.supplemental = security("runAsUser"), security("runAsGroup"), security("fsGroup")
	x.image()
	x.volumes()
	return x
}

func (x *pod) must(errs ...error) {
	x.t.Helper()
	if err := errors.Join(errs...); err != nil {
		x.t.Fatal(err)
	}
}

// image makes the root as tools/ociimage does: the programs, and the state directory of the user.
func (x *pod) image() {
	x.t.Helper()
	bin := filepath.Join(x.root, "usr/bin")
	state := filepath.Join(x.root, "var/lib/ingot-controller")
	x.must(os.MkdirAll(bin, 0o755), os.MkdirAll(state, 0o755), os.Chmod(state, 0o700), os.Chown(state, 65532, 65532),
		os.MkdirAll(filepath.Join(x.root, "proc"), 0o755), os.MkdirAll(filepath.Join(x.root, "etc"), 0o755))
	image := kubetest.Text(x.container, "image")
	for name, from := range map[string]string{"ingot-controller": programOf(x.t, image), "ingot": harness.Build(x.t).CLI} {
		raw, err := os.ReadFile(from)
		x.must(err, os.WriteFile(filepath.Join(bin, name), raw, 0o755))
	}
	hosts := "127.0.0.1 localhost\n" + x.p.database.address + " " + x.p.database.host + "\n"
	x.must(os.WriteFile(filepath.Join(x.root, "etc/hosts"), []byte(hosts), 0o644))
	x.mount(x.root, "/", unix.MS_BIND, "")
	x.mount("proc", "/proc", 0, "")
}

func (x *pod) mount(source, path string, flags uintptr, kind string) {
	x.t.Helper()
	if flags == 0 {
		kind = source
	}
	to := filepath.Join(x.root, path)
	if err := unix.Mount(source, to, kind, flags, ""); err != nil {
		x.t.Fatalf("mount %s at %s: %v", source, path, err)
	}
	if flags&unix.MS_REMOUNT == 0 {
		x.mounts = append(x.mounts, to)
	}
}

// volumes mounts each volume of the container, and seals the root.
func (x *pod) volumes() {
	x.t.Helper()
	sources := map[string]string{}
	list, _ := x.spec["volumes"].([]any)
	for _, v := range list {
		sources[kubetest.Text(v.(object), "name")] = x.volume(v.(object))
	}
	mounts, _ := x.container["volumeMounts"].([]any)
	for _, m := range mounts {
		at := kubetest.Text(m.(object), "mountPath")
		x.must(os.MkdirAll(filepath.Join(x.root, at), 0o755))
	}
	if kubetest.In(x.container, "securityContext", "readOnlyRootFilesystem") == true {
		x.mount("", "/", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	for _, m := range mounts {
		at, source := kubetest.Text(m.(object), "mountPath"), sources[kubetest.Text(m.(object), "name")]
		if source == "" {
			x.t.Fatalf("there is no volume at %s", at)
		}
		x.mount(source, at, unix.MS_BIND, "")
		if m.(object)["readOnly"] == true {
			x.mount("", at, unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
	}
}

// volume makes a volume as a kubelet does, with the group of fsGroup, and returns its directory.
func (x *pod) volume(v object) string {
	x.t.Helper()
	dir := filepath.Join(x.dir, kubetest.Text(v, "name"))
	claim := kubetest.Text(v, "persistentVolumeClaim", "claimName")
	if claim != "" {
		if x.p.Admin.Get("/api/v1/namespaces/"+namespace+"/persistentvolumeclaims/"+claim) == nil {
			x.t.Fatalf("there is no claim %s", claim)
		}
		dir = filepath.Join(x.p.dir, "claims", claim)
	}
	x.must(os.MkdirAll(dir, 0o755), os.Chown(dir, 0, int(x.supplemental)))
	if v["configMap"] != nil {
		found := x.p.Admin.Get("/api/v1/namespaces/" + namespace + "/configmaps/" + kubetest.Text(v, "configMap", "name"))
		for name := range found["data"].(object) {
			x.file(dir, name, []byte(kubetest.Text(found, "data", name)), 0o644)
		}
		return dir
	}
	if v["secret"] != nil {
		x.secretVolume(dir, v["secret"].(object))
		return dir
	}
	if claim == "" && v["emptyDir"] == nil {
		x.t.Fatalf("the test knows no volume such as %v", v)
	}
	x.must(os.Chmod(dir, 0o777|os.ModeSetgid))
	return dir
}

func (x *pod) secretVolume(dir string, v object) {
	x.t.Helper()
	found := x.p.Admin.Get("/api/v1/namespaces/" + namespace + "/secrets/" + kubetest.Text(v, "secretName"))
	if found == nil {
		x.t.Fatalf("there is no Secret %s", kubetest.Text(v, "secretName"))
	}
	mode, _ := v["defaultMode"].(float64)
	names := map[string]string{}
	for key := range found["data"].(object) {
		names[key] = key
	}
	if items, ok := v["items"].([]any); ok {
		names = map[string]string{}
		for _, i := range items {
			names[kubetest.Text(i.(object), "key")] = kubetest.Text(i.(object), "path")
		}
	}
	for key, name := range names {
		raw, err := base64.StdEncoding.DecodeString(kubetest.Text(found, "data", key))
		x.must(err)
		x.file(dir, name, raw, os.FileMode(mode))
	}
}

// file writes a file of a volume as a kubelet does: a link to one that root owns and fsGroup may read.
func (x *pod) file(dir, name string, text []byte, mode os.FileMode) {
	x.t.Helper()
	data := filepath.Join(dir, "..data")
	to := filepath.Join(data, name)
	x.must(os.MkdirAll(data, 0o755), os.WriteFile(to, text, 0o600), os.Chown(to, 0, int(x.supplemental)),
		os.Chmod(to, mode|0o440), os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
}

// command is a program of the image as the container's.
func (x *pod) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/"+args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin"}
	env, _ := x.container["env"].([]any)
	for _, e := range env {
		cmd.Env = append(cmd.Env, kubetest.Text(e.(object), "name")+"="+x.value(e.(object)))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: x.root, Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: x.user, Gid: x.group, Groups: []uint32{x.supplemental}}}
	return cmd
}

// value is of a variable: its own, or one of a Secret.
func (x *pod) value(e object) string {
	x.t.Helper()
	ref, ok := kubetest.In(e, "valueFrom", "secretKeyRef").(object)
	if !ok {
		return kubetest.Text(e, "value")
	}
	found := x.p.Admin.Get("/api/v1/namespaces/" + namespace + "/secrets/" + kubetest.Text(ref, "name"))
	raw, err := base64.StdEncoding.DecodeString(kubetest.Text(found, "data", kubetest.Text(ref, "key")))
	x.must(err)
	if len(raw) == 0 {
		x.t.Fatalf("the Secret %s has no %s", kubetest.Text(ref, "name"), kubetest.Text(ref, "key"))
	}
	return string(raw)
}

// listen are flags in place of a network of the pod's own: every port that the container names, at its address.
func (x *pod) listen() (flags []string) {
	x.t.Helper()
	ports, _ := x.container["ports"].([]any)
	for _, port := range ports {
		name := kubetest.Text(port.(object), "name")
		flag := map[string]string{"clients": "--listen", "agents": "--listen-fleet", "enrolment": "--listen-enrolment",
			"rest": "--listen-rest", "http": "--listen-http"}[name]
		if flag == "" {
			x.t.Fatalf("the test knows no port %s", name)
		}
		flags = append(flags, flag, x.at(name))
	}
	if len(flags) != 10 {
		x.t.Fatalf("the container names %d ports", len(flags)/2)
	}
	return flags
}

// at is the address of a port, by its name.
func (x *pod) at(port string) string {
	x.t.Helper()
	ports, _ := x.container["ports"].([]any)
	for _, o := range ports {
		if kubetest.Text(o.(object), "name") == port {
			return fmt.Sprintf("%s:%s", x.address, kubetest.Text(o.(object), "containerPort"))
		}
	}
	x.t.Fatalf("there is no port %s", port)
	return ""
}

// start starts the container with the arguments of its pod, and more.
func (x *pod) start(more []string) {
	x.t.Helper()
	args := []string{"ingot-controller"} // the image's entry point
	given, _ := x.container["args"].([]any)
	for _, a := range given {
		args = append(args, a.(string))
	}
	x.cmd = x.command(append(args, more...)...)
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.out
	x.must(x.cmd.Start())
	go func() {
		x.err = x.cmd.Wait()
		close(x.done)
	}()
}

// probe asks as a kubelet does.
func (x *pod) probe(kind string) bool {
	x.t.Helper()
	get, ok := kubetest.In(x.container, kind, "httpGet").(object)
	if !ok {
		x.t.Fatalf("there is no %s", kind)
	}
	seconds, _ := kubetest.In(x.container, kind, "timeoutSeconds").(float64)
	client := http.Client{Timeout: time.Duration(seconds) * time.Second}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet,
		"http://"+x.at(kubetest.Text(get, "port"))+kubetest.Text(get, "path"), nil)
	x.must(err)
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close()) == nil && resp.StatusCode >= 200 && resp.StatusCode < 400
}

// ready waits until the pod is, and holds that it is alive.
func (x *pod) ready() {
	x.t.Helper()
	testkit.Eventually(x.t, soon, func() bool {
		select {
		case <-x.done:
			x.t.Fatalf("%s has ended: %v\n%s", x.name, x.err, x.out.String())
		default:
		}
		return x.probe("readinessProbe")
	}, "%s is not ready: %v", x.name, &x.out)
	if !x.probe("livenessProbe") {
		x.t.Errorf("%s is ready and not alive", x.name)
	}
}

// stop ends the container as a kubelet does, and holds that it ends well within its time.
func (x *pod) stop() {
	x.t.Helper()
	grace, _ := x.spec["terminationGracePeriodSeconds"].(float64)
	x.must(x.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-x.done:
	case <-time.After(time.Duration(grace) * time.Second):
		x.t.Errorf("%s does not end within %v s:\n%s", x.name, grace, x.out.String())
	}
	if x.err != nil {
		x.t.Errorf("%s ends with %v", x.name, x.err)
	}
	x.remove()
}

// remove kills what still runs, and removes the pod and its mounts; the last one first.
func (x *pod) remove() {
	if x.mounts == nil {
		return
	}
	if x.cmd != nil && x.cmd.Process != nil {
		_ = x.cmd.Process.Kill() // it may have ended
		<-x.done
	}
	for i := len(x.mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(x.mounts[i], unix.MNT_DETACH); err != nil {
			// The removal of the directory would delete through the mount.
			panic(fmt.Sprintf("unmount %s: %v", x.mounts[i], err))
		}
	}
	x.mounts = nil
	if x.t.Failed() {
		text := x.out.String()
		x.t.Logf("%s said at its end:\n%s", x.name, text[max(0, len(text)-3000):])
	}
	if x.t.Context().Err() == nil {
		x.p.Admin.Delete(podsPath + "/" + x.name)
	}
}

// ingot runs the command line of a pod's image in the pod, with an admin's token.
func (x *pod) ingot(token string, args ...string) string {
	x.t.Helper()
	cmd := x.command(append([]string{"ingot"}, args...)...)
	cmd.Env = append(cmd.Env, "INGOT_TOKEN="+token, "INGOT_SERVER="+x.at("clients"), "HOME=/tmp")
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.t.Fatalf("ingot %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
