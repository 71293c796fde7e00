package vm

import (
	"slices"
	"strings"
	"testing"
)

func TestDefaultsAreDerivedFromTheName(t *testing.T) {
	t.Parallel()
	first, again, other := Config{Name: "a"}, Config{Name: "a"}, Config{Name: "b"}
	first.setDefaults()
	again.setDefaults()
	other.setDefaults()
	if first.MAC != again.MAC || first.UUID != again.UUID {
		t.Errorf("one name gives %+v and %+v", first, again)
	}
	if first.MAC == other.MAC || first.UUID == other.UUID || first.Serial == other.Serial {
		t.Errorf("two names give %+v and %+v", first, other)
	}
	given := Config{Name: "a", MAC: "52:54:00:00:00:01", UUID: "u", Serial: "s", MemoryMB: 1, Cmdline: "c", Firmware: BIOS}
	kept := given
	kept.setDefaults()
	if kept.MAC != given.MAC || kept.UUID != "u" || kept.Serial != "s" || kept.MemoryMB != 1 || kept.Cmdline != "c" ||
		kept.Firmware != BIOS {
		t.Errorf("given values became %+v", kept)
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]Config{
		"name":             {Dir: "/d"},
		"directory":        {Name: "n"},
		"too long":         {Name: "n", Dir: "/" + strings.Repeat("d", 100)},
		"unknown firmware": {Name: "n", Dir: "/d", Firmware: "coreboot"},
		"kernel":           {Name: "n", Dir: "/d", Initrd: "i"},
	} {
		if _, err := c.complete(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: error %v, want one with %q", c, err, says)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	c := Config{
		Name: "n", Dir: "/d,ir", Kernel: "k", Initrd: "i", StateDisk: "s.img", ExtraDisks: []string{"e.qcow2"}, Serial: "x,y",
	}
	c.setDefaults()
	args := arguments(c)
	line := strings.Join(args, " ")
	for _, want := range []string{
		"-accel tcg", "serial=x,,y,", "path=/d,,ir/serial.log",
		"id=disk0,format=raw,file=s.img", "id=disk1,format=qcow2,file=e.qcow2", "-append " + DefaultCmdline, "romfile=",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	// With it the machine would be gone instead of rebooting.
	if slices.Contains(args, "-no-reboot") {
		t.Error("-no-reboot")
	}
	c.Firmware, c.Kernel, c.Initrd = UEFI, "", ""
	line = strings.Join(arguments(c), " ")
	if strings.Contains(line, "-kernel") || strings.Contains(line, "romfile=") ||
		!strings.Contains(line, "file=/d,,ir/"+varsFile) {
		t.Errorf("UEFI without a kernel: %s", line)
	}
}

func TestCountReboots(t *testing.T) {
	t.Parallel()
	at := func(name string, us int64) Event {
		e := Event{Name: name}
		e.Timestamp.Seconds, e.Timestamp.Microseconds = 1_700_000_000+us/1_000_000, us%1_000_000
		return e
	}
	// What QEMU 7.2 said of one reboot(2) on a q35 with SeaBIOS, and of a reset button pressed later.
	one := []Event{at("RESUME", 0), at("NIC_RX_FILTER_CHANGED", 2_900_000),
		at("RESET", 3_407_441), at("RESET", 3_453_645), at("RESET", 3_454_214)}
	two := append(slices.Clone(one), at("RESET", 9_308_069), at("RESET", 9_347_985))
	for want, events := range [][]Event{nil, one, two} {
		if got := countReboots(events); got != want {
			t.Errorf("%d reboots in %+v, want %d", got, events, want)
		}
	}
}

func TestReadEventsTakesAHalfWrittenLine(t *testing.T) {
	t.Parallel()
	events, err := readEvents(strings.NewReader("{\"event\":\"RESET\",\"data\":{\"guest\":true}}\n{\"event\":\"SHU"))
	if err != nil || len(events) != 1 || !events[0].ByGuest() {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := readEvents(strings.NewReader("nonsense\n")); err == nil {
		t.Error("nonsense was accepted")
	}
}

func TestFindForward(t *testing.T) {
	t.Parallel()
	const table = "Hub -1 (net0):\n" +
		"  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n" +
		"  TCP[ESTABLISHED]   19       127.0.0.1  9999       10.0.2.15    23     0     0\n" +
		"  TCP[HOST_FORWARD]  13       127.0.0.1 41203       10.0.2.15    22     0     0\n"
	if port, ok := findForward(table, 22); port != 41203 || !ok {
		t.Errorf("port %d, %v", port, ok)
	}
	if port, ok := findForward(table, 23); ok {
		t.Errorf("a connection was taken for a forward: %d", port)
	}
}
