package httpboot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/uki"
)

// TestAsIPXEDoes fetches in the order in which iPXE does: the script by MAC, then what it names.
func TestAsIPXEDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	v := r.bootable()
	r.Set(v)
	_, script := r.do("GET", "/boot/auto.ipxe?mac="+cardOne.String()+"&arch=x86_64")
	var kernel string
	for line := range strings.Lines(string(script)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "kernel" {
			continue
		}
		kernel = f[1]
		want := "initrd=initrd ingot.role=installer ingot.site=" + r.Base() +
			" ingot.token=tok console=ttyS0 panic=10 ingot.mac=${netX/mac}"
		if got := strings.TrimSuffix(strings.Join(f[2:], " "), " || goto failed"); got != want {
			t.Errorf("kernel parameters\n%s, want\n%s", got, want)
		}
	}
	path := strings.NewReplacer(r.Base(), "", "${buildarch}", "x86_64").Replace(kernel)
	for range 2 { // firmware asks twice
		resp, head := r.do("HEAD", path)
		if resp.ContentLength != int64(len(r.blobs[v.Installers[0].Kernel])) || len(head) != 0 ||
			resp.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("HEAD of the kernel: %v", resp.Header)
		}
		if _, body := r.do("GET", path); !bytes.Equal(body, r.blobs[v.Installers[0].Kernel]) {
			t.Errorf("a kernel of %d bytes", len(body))
		}
	}
	if _, body := r.do("GET", strings.Replace(path, "/kernel", "/initrd", 1)); !bytes.Equal(body,
		r.blobs[v.Installers[0].Initrd]) {
		t.Errorf("an initrd of %d bytes", len(body))
	}
	if _, named := r.do("GET", "/boot/tok/script.ipxe"); !bytes.Equal(named, script) {
		t.Errorf("by token:\n%s, by MAC:\n%s", named, script)
	}
}

func TestTheUnifiedKernelGetsTheMachinesParameters(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	v := r.bootable()
	r.Set(v)
	for _, path := range []string{"/boot/auto.efi?mac=" + cardOne.String(), "/boot/tok/uki.efi"} {
		resp, image := r.do("GET", path)
		line, err := uki.Contents(image, ".cmdline")
		if err != nil {
			t.Fatal(err)
		}
		want := "quiet ingot.role=installer ingot.role=installer ingot.site=" + r.Base() +
			" ingot.token=tok console=ttyS0 panic=10"
		if got := strings.TrimSpace(string(line)); got != want {
			t.Errorf("%s has\n%q, want\n%q", path, got, want)
		}
		own := r.blobs[v.Installers[0].UKI]
		if len(image) != len(own) || resp.Header.Get("Content-Type") != "application/efi" {
			t.Errorf("%d bytes of %d, %s", len(image), len(own), resp.Header.Get("Content-Type"))
		}
		at := bytes.Index(image, line)
		part, got := r.do("GET", path, "Range", fmt.Sprintf("bytes=%d-%d", at-10, at+10))
		if part.StatusCode != http.StatusPartialContent || !bytes.Equal(got, image[at-10:at+11]) {
			t.Errorf("a range over the parameters: %s %q", part.Status, got)
		}
		if resp.Header.Get("ETag") == `"`+v.Installers[0].UKI+`"` {
			t.Error("an image with parameters has the tag of one without")
		}
	}
}

func TestATokenDiesWithItsAssignment(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	v := r.bootable()
	r.Set(v)
	files := []string{"/boot/tok/script.ipxe", "/boot/tok/kernel", "/boot/tok/initrd", "/boot/tok/uki.efi"}
	for _, f := range files {
		r.want("GET", f, http.StatusOK)
		r.want("GET", strings.Replace(f, "tok", "old", 1), http.StatusGone)
		r.want("GET", strings.Replace(f, "tok", "discovery", 1), http.StatusGone)
		r.want("POST", f, http.StatusMethodNotAllowed)
	}
	r.want("GET", "/boot/auto.efi?mac="+cardTwo.String(), http.StatusNotFound)
	r.want("GET", "/boot/auto.efi?mac=02:00:00:00:00:09", http.StatusNotFound)
	v.Assignments[0].Mode, v.Blobs = segment.BootDisk, nil
	r.Set(v)
	for _, f := range files {
		r.want("GET", f, http.StatusGone)
	}
	r.want("GET", "/blob/"+v.Installers[0].Kernel, http.StatusNotFound)
	if _, script := r.do("GET", "/boot/auto.ipxe?mac="+cardOne.String()); string(script) != diskScript {
		t.Errorf("the script of a machine that boots from its disk:\n%s", script)
	}
}

func TestOnlyWhatIsNeededIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	v := r.bootable()
	secret := r.add([]byte("nobody needs this"))
	r.Set(v)
	r.want("GET", "/blob/"+v.Installers[0].Kernel, http.StatusOK)
	r.want("GET", "/blob/"+secret, http.StatusNotFound)
	for _, path := range []string{
		"/", "/boot", "/boot/", "/boot/tok", "/boot/tok/", "/boot/tok/kernel/", "/boot//kernel", "/boot/tok/../tok/kernel",
		"/boot/tok/%2e%2e/kernel",
		"/blob/", "/blob/../../etc/passwd", "/blob/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/blob/" +
			strings.ToUpper(v.Installers[0].Kernel), "/etc/passwd",
	} {
		r.want("GET", path, http.StatusNotFound)
	}
	r.want("GET", "/boot/auto.ipxe", http.StatusBadRequest)
	r.want("GET", "/boot/auto.ipxe?mac=zz", http.StatusBadRequest)
	r.want("DELETE", "/boot/tok/kernel", http.StatusMethodNotAllowed)
	r.want("GET", "/boot/tok/enrol", http.StatusMethodNotAllowed)
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Segment.Discovery = segment.DiscoveryBoot })
	v := r.bootable()
	r.Set(v)
	stranger := segment.MAC{2, 0, 0, 0, 0, 9}
	_, script := r.do("GET", "/boot/auto.ipxe?mac="+stranger.String())
	if !strings.Contains(string(script), "ingot.token=discovery ingot.mode=rescue") {
		t.Errorf("the script of an unknown machine:\n%s", script)
	}
	r.want("GET", "/boot/discovery/kernel", http.StatusOK)
	r.owner = stranger
	if got := r.enrol("discovery", stranger); got != "503 MACHINE_NOT_FOUND" {
		t.Errorf("an unknown machine at the desk: %s", got)
	}
	var asked *fleetv1.VouchInstallerRequest
	r.vouch = func(req *fleetv1.VouchInstallerRequest) error { asked = req; return nil }
	v.Assignments = append(v.Assignments, segment.Assignment{MAC: stranger, MachineID: "m-9", OperationID: "op-9",
		Mode: segment.BootInstaller, Token: "new"})
	r.Set(v)
	if got := r.enrol("discovery", stranger); got != "200 " || asked.GetBootToken() != "new" ||
		asked.GetMachineId() != "m-9" {
		t.Errorf("once it is known: %s, %v", got, asked)
	}
	_, body := r.do("GET", "/boot/self")
	var self Self
	if err := json.Unmarshal(body, &self); err != nil ||
		self != (Self{MAC: stranger.String(), Mode: "installer", Token: "new"}) {
		t.Errorf("of itself it hears %s, %v", body, err)
	}
}

// enrol returns the status and reason of an enrolment.
func (r *rig) enrol(token string, mac segment.MAC) string {
	r.t.Helper()
	body, err := json.Marshal(installerenrol.Request{CSR: []byte("csr"), MAC: mac.String()})
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.Post(r.Base()+"/boot/"+token+"/enrol", "application/json", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var p installerenrol.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		r.t.Error("503 without Retry-After")
	}
	return fmt.Sprint(resp.StatusCode, " ", p.Reason)
}

func TestTheDesk(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Set(r.bootable())
	var answer error
	r.vouch = func(*fleetv1.VouchInstallerRequest) error { return answer }
	for _, c := range []struct {
		what, token, want string
		mac, owner        segment.MAC
		controller        error
	}{
		{"in order", "tok", "200 ", cardOne, cardOne, nil},
		{"a dead token", "old", "410 BOOT_TOKEN_DEAD", cardTwo, cardTwo, nil},
		{"no token of ours", "tokk", "410 BOOT_TOKEN_DEAD", cardOne, cardOne, nil},
		{"another machine's card", "tok", "403 NOT_WHERE_ASSIGNED", cardTwo, cardTwo, nil},
		{"somebody else's address", "tok", "403 NOT_WHERE_ASSIGNED", cardOne, cardTwo, nil},
		{"nobody's address", "tok", "403 NOT_WHERE_ASSIGNED", cardOne, segment.MAC{}, nil},
		{"a second key", "tok", "409 ENROLMENT_CONTESTED", cardOne, cardOne,
			failure.Precondition("ENROLMENT_CONTESTED", "two keys")},
		{"perhaps a second key", "tok", "503 ENROLMENT_CONTESTED", cardOne, cardOne,
			failure.Unavailable("ENROLMENT_CONTESTED", "wait")},
		{"no controller", "tok", "503 SESSION_UNKNOWN", cardOne, cardOne,
			failure.Unavailable("SESSION_UNKNOWN", "open a session")},
		{"a controller that fails", "tok", "503 INTERNAL", cardOne, cardOne, fmt.Errorf("broken")},
		{"a bad request", "tok", "400 INVALID_FIELD", cardOne, cardOne, failure.Invalid("INVALID_FIELD", "csr")},
	} {
		r.mu.Lock()
		r.owner = c.owner
		r.mu.Unlock()
		answer = c.controller
		if got := r.enrol(c.token, c.mac); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	for _, body := range []string{"", "{", "[]", `{"csr":"x"}`, `{"mac":"` + cardOne.String() + `"}`,
		strings.Repeat(" ", 100_000)} {
		resp, err := http.Post(r.Base()+"/boot/tok/enrol", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%.20q: %s", body, resp.Status)
		}
	}
}

func TestCurlAgrees(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	v := r.bootable()
	r.Set(v)
	url, want := r.Base()+"/blob/"+v.Installers[0].Kernel, r.blobs[v.Installers[0].Kernel]
	curl := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "curl", append([]string{"-s", "-S"}, args...)...).Output()
		if err != nil {
			t.Fatalf("curl %v: %v", args, err)
		}
		return string(out)
	}
	if got := curl(url); got != string(want) {
		t.Errorf("whole: %d bytes", len(got))
	}
	n := len(want)
	for ask, part := range map[string][]byte{"0-0": want[:1], "100-299": want[100:300], "-7": want[n-7:],
		fmt.Sprint(n-5, "-"): want[n-5:]} {
		if got := curl("-r", ask, url); got != string(part) {
			t.Errorf("range %s: %q, want %q", ask, got, part)
		}
	}
	if got := curl("-o", "/dev/null", "-w", "%{http_code} %header{content-range}", "-r", fmt.Sprint(n, "-"),
		url); got != fmt.Sprintf("416 bytes */%d", n) {
		t.Errorf("a range behind the end: %s", got)
	}
	if got := curl("-I", url); !strings.Contains(got, fmt.Sprintf("Content-Length: %d\r\n", n)) {
		t.Errorf("HEAD: %s", got)
	}
	tag := `If-None-Match: "` + v.Installers[0].Kernel + `"`
	if got := curl("-H", tag, "-o", "/dev/null", "-w", "%{http_code}", url); got != "304" {
		t.Errorf("with its tag: %s", got)
	}
	// Two ranges at once, and resuming a part with If-Range.
	if got := curl("-r", "0-1,10-11", url); strings.Count(got, "Content-Range: bytes") != 2 {
		t.Errorf("two ranges: %q", got)
	}
	if got := curl("-r", "5-9", "-H", `If-Range: "another"`, url); got != string(want) {
		t.Errorf("If-Range of another file gives %d bytes", len(got))
	}
}

func TestABlobThatFailsIsCutShort(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	sum := r.add(data)
	r.blobs[sum] = append(data[:len(data)-1:len(data)-1], 'X')
	r.Set(View{Blobs: []string{sum}})
	r.hold = make(chan struct{})
	resp, err := http.Get(r.Base() + "/blob/" + sum)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(r.hold)
	got, err := io.ReadAll(resp.Body)
	if err == nil || len(got) >= len(data) {
		t.Errorf("%d of %d bytes of a wrong blob, %v", len(got), len(data), err)
	}
	r.want("GET", "/blob/"+sum, http.StatusBadGateway)
}

func TestAMachineThatTakesNothingIsDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Stall, c.MaxFiles = 100*time.Millisecond, 1 })
	sum := r.add(bytes.Repeat([]byte("0123456789"), 3_000_000))
	r.Set(View{Blobs: []string{sum}})
	r.want("HEAD", "/blob/"+sum, http.StatusOK)
	conn, err := net.Dial("tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /blob/"+sum+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	resp, _ := r.do("GET", "/blob/"+sum)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one file too many: %s", resp.Status)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		resp, _ := r.do("HEAD", "/blob/"+sum)
		return resp.StatusCode == http.StatusOK
	}, "the machine that takes nothing keeps its place")
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.PerMachine = 3 })
	var open []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", r.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	refused, err := net.Dial("tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a fourth connection is not closed")
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		c, err := net.Dial("tcp", r.Address())
		if err != nil {
			return false
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return false
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		return err == nil && strings.Contains(line, "404")
	}, "a closed connection is still counted")
}
