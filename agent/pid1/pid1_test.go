package pid1

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/task"
)

func TestIsInitIsFalseForAnOrdinaryProcess(t *testing.T) {
	t.Setenv(childEnv, "1") // not enough: the parent must be process 1
	if os.Getppid() != 1 && IsInit() {
		t.Error("an ordinary process takes itself for init")
	}
}

// image is a file with an ext superblock that has the label.
func extImage(label string, magic uint16) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint16(b[1024+0x38:], magic)
	copy(b[1024+0x78:1024+0x88], label)
	return b
}

func writtenAt(image []byte, seconds int64) []byte {
	binary.LittleEndian.PutUint32(image[1024+0x30:], uint32(seconds))
	image[1024+0x274] = byte(seconds >> 32)
	return image
}

func TestFindLabel(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	for name, data := range map[string][]byte{
		"vda": make([]byte, 4096),
		"vdb": extImage("OTHER", 0xef53),
		"vdc": extImage(imagelayout.StateLabel, 0xbeef), // the label without the magic
		"vdd": extImage(imagelayout.StateLabel, 0xef53),
		"vde": []byte("short"),
		"vdf": extImage("SIXTEEN-BYTES-AB", 0xef53),
		"vdg": extImage(imagelayout.StateLabel, 0xef53),
		"vdh": writtenAt(extImage(imagelayout.StateLabel, 0xef53), 1<<32+7),
	} {
		if err := os.WriteFile(filepath.Join(dev, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dev, name))
		}
		return paths
	}
	for label, want := range map[string][]string{
		imagelayout.StateLabel: at("vdh", "vdd", "vdg"), "SIXTEEN-BYTES-AB": at("vdf"), "ABSENT": nil,
	} {
		if got := findLabel(dev, dev, label); !slices.Equal(got, want) {
			t.Errorf("%s is on %q, want %q", label, got, want)
		}
	}
}

func TestRebootAfterPanicKeepsWhatWasGiven(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{"0\n": "10\n", "5\n": "5\n", "-1\n": "-1\n"} {
		file := filepath.Join(t.TempDir(), "panic")
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := rebootAfterPanic(file); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%q becomes %q, %v", before, got, err)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	t.Parallel()
	n, err := parseNetwork([]byte(`{"hostname":"h","address":"192.0.2.7/24","gateway":"192.0.2.1","dns":["192.0.2.53"]}`))
	if err != nil || n.Hostname != "h" || n.Address != netip.MustParsePrefix("192.0.2.7/24") ||
		n.Gateway != netip.MustParseAddr("192.0.2.1") || string(resolvConf(n.DNS)) != "nameserver 192.0.2.53\n" {
		t.Errorf("%+v, %v", n, err)
	}
	for _, bad := range []string{`{}`, `{"address":"192.0.2.7"}`, `{"address":"192.0.2.7/24","adr":""}`, ``} {
		if _, err := parseNetwork([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
	if n, err := readNetwork(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %+v, %v", n, err)
	}
}

func TestPickLink(t *testing.T) {
	t.Parallel()
	device := func(index int, encap, mac string) netlink.Link {
		hw, err := net.ParseMAC(mac)
		if err != nil {
			t.Fatal(err)
		}
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, EncapType: encap, HardwareAddr: hw}}
	}
	links := []netlink.Link{
		device(1, "loopback", "00:00:00:00:00:00"),
		device(4, "ether", "52:54:00:00:00:04"),
		device(3, "ether", "52:54:00:00:00:0a"),
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: 2, EncapType: "ether"}},
	}
	for mac, want := range map[string]int{"": 3, "52:54:00:00:00:04": 4, "52:54:00:00:00:0A": 3} {
		if got := pickLink(links, mac); got == nil || got.Attrs().Index != want {
			t.Errorf("MAC %q: %v, want index %d", mac, got, want)
		}
	}
	if got := pickLink(links, "52:54:00:00:00:99"); got != nil {
		t.Errorf("unknown MAC: %v", got)
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	mac := net.HardwareAddr{0x52, 0x54, 0, 0xab, 0xcd, 0xef}
	if got := hostname(Network{}, mac); got != "ingot-abcdef" {
		t.Errorf("derived %q", got)
	}
	if got := hostname(Network{Hostname: "named"}, mac); got != "named" {
		t.Errorf("given: %q", got)
	}
	etc := t.TempDir()
	if got, err := savedHostname(etc); got != "" || err != nil {
		t.Errorf("nothing saved: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(etc, "hostname"), []byte("saved\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := savedHostname(etc); got != "saved" || err != nil {
		t.Errorf("saved: %q, %v", got, err)
	}
}

func TestMachineIDIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "machine-id")
	var ids []string
	for range 2 {
		if err := ensureMachineID(path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(data))
	}
	if len(ids[0]) != 33 || ids[0] != ids[1] || strings.Trim(ids[0], "0123456789abcdef") != "\n" {
		t.Errorf("machine-ids %q", ids)
	}
	if a, b := newMachineID(), newMachineID(); a == b {
		t.Error("two machines get the same id")
	}
}

func TestReadUntilPressed(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, ev := range []inputEvent{
		{Type: evKey, Code: 30, Value: 1},       // another key
		{Type: evKey, Code: keyPower, Value: 0}, // let go
		{Type: evKey, Code: keyPower, Value: 1},
		{Type: evKey, Code: 31, Value: 1},
	} {
		if err := binary.Write(&b, binary.NativeEndian, ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := readUntilPressed(&b); err != nil || b.Len() != 24 {
		t.Errorf("error %v, %d bytes left, want the 24 of one event", err, b.Len())
	}
	if err := readUntilPressed(&b); !errors.Is(err, io.EOF) {
		t.Errorf("without a press: %v", err)
	}
}

func TestReapUntilCollectsOrphans(t *testing.T) {
	t.Parallel()
	const ours = 7
	answers := []struct {
		pid    int
		status unix.WaitStatus
		err    error
	}{{99, 0, nil}, {-1, 0, unix.EINTR}, {ours, 0x0300, nil}, {-1, 0, unix.ECHILD}}
	calls := 0
	wait := func(pid int, status *unix.WaitStatus, _ int, _ *unix.Rusage) (int, error) {
		if pid != -1 {
			t.Errorf("waits for %d only", pid)
		}
		a := answers[calls]
		calls++
		*status = a.status
		return a.pid, a.err
	}
	if got := reapUntil(ours, wait); got.ExitStatus() != 3 || calls != 3 {
		t.Errorf("status %d after %d calls", got.ExitStatus(), calls)
	}
	if got := reapUntil(ours, wait); afterExit(got) != restart {
		t.Errorf("a child that was lost means %v, want a restart", afterExit(got))
	}
}

func TestAfterExit(t *testing.T) {
	t.Parallel()
	for status, want := range map[unix.WaitStatus]verb{
		0x0000: powerOff, 0x0100: restart, 0x0200: restart,
		unix.WaitStatus(unix.SIGKILL): restart, unix.WaitStatus(unix.SIGSEGV) | 0x80: restart,
	} {
		if got := afterExit(status); got != want {
			t.Errorf("%s means %v, want %v", describe(status), got, want)
		}
	}
}

// run puts the next life of a supervisor whose child's end comes from the test's channel.
func run(t *testing.T, fake *clock.Fake, done chan unix.WaitStatus) (*supervisor, <-chan verb) {
	t.Helper()
	s := &supervisor{requests: make(chan verb, 1), clock: fake, start: func() (*child, error) {
		// Process 0 in kill(2) would be our own group; this one can't exist.
		return &child{pid: 1 << 30, done: done}, nil
	}}
	result := make(chan verb, 1)
	task.Background("next", func() { result <- s.next() })
	return s, result
}

func TestCrashIsFollowedByADelay(t *testing.T) {
	t.Parallel()
	fake, done := clock.NewFake(time.Unix(0, 0)), make(chan unix.WaitStatus, 1)
	_, result := run(t, fake, done)
	done <- 0x0200
	if err := fake.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	fake.Advance(restartDelay - 1)
	if len(result) != 0 {
		t.Error("restarted before the delay was over")
	}
	fake.Advance(1)
	if got := <-result; got != restart {
		t.Errorf("%v after a crash", got)
	}
}

func TestRequestEndsTheDelay(t *testing.T) {
	t.Parallel()
	fake, done := clock.NewFake(time.Unix(0, 0)), make(chan unix.WaitStatus, 1)
	s, result := run(t, fake, done)
	done <- 0x0200
	if err := fake.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.request(reboot)
	s.request(powerOff) // too late
	if got := <-result; got != reboot {
		t.Errorf("%v, want the first request", got)
	}
}

func TestRequestStopsTheChild(t *testing.T) {
	t.Parallel()
	s, result := run(t, clock.NewFake(time.Unix(0, 0)), make(chan unix.WaitStatus))
	s.request(powerOff)
	if got := <-result; got != powerOff {
		t.Errorf("%v", got)
	}
}

func TestChildThatCannotStartIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := &supervisor{start: func() (*child, error) { return nil, errors.New("no memory") }}
	if got := s.life(); got != restart {
		t.Errorf("%v", got)
	}
}

func TestSuperviseElsewhereIsACall(t *testing.T) {
	t.Parallel()
	want := errors.New("mine")
	if err := Supervise(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
