package cmdline

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestDoctorNamesAPortInUse: the fault is another listener; the remedy, its end, mends it.
func TestDoctorNamesAPortInUse(t *testing.T) {
	other, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := other.LocalAddr().String()
	if f := checkPort(t.Context(), "udp4", address); f.level != fail || f.next == "" {
		t.Errorf("a port in use: %+v", f)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if f := checkPort(t.Context(), "udp4", address); f.level != ok {
		t.Errorf("after its program has ended: %+v", f)
	}
}

func TestDoctorNamesMissingBootPrograms(t *testing.T) {
	dir := t.TempDir()
	if f := checkBootPrograms("", dir); f.level != fail || f.next != "apt install ipxe" {
		t.Errorf("an empty directory: %+v", f)
	}
	for _, name := range []string{"undionly.kpxe", "snponly.efi"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if f := checkBootPrograms("", dir); f.level != ok {
		t.Errorf("with both: %+v", f)
	}
}

func TestDoctorNamesLackOfSpaceAndDevices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "made")
	for level, bounds := range map[level][2]uint64{fail: {1 << 62, 1 << 62}, warn: {0, 1 << 62}, ok: {0, 0}} {
		if f := checkSpace(dir, bounds[0], bounds[1]); f.level != level || (level == ok) != (f.next == "") {
			t.Errorf("%s: %+v", level, f)
		}
	}
	if _, f := checkDevice("nosuchdevice"); f.level != fail || f.next == "" {
		t.Errorf("a device that is not there: %+v", f)
	}
	if address, f := checkDevice("lo"); f.level != ok || address != "127.0.0.1" {
		t.Errorf("loopback: %s %+v", address, f)
	}
}
