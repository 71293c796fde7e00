package cmdline

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/internal/doctor"
)

// TestDoctorNamesAPortInUse: the fault is another listener; the remedy, its end, mends it.
func TestDoctorNamesAPortInUse(t *testing.T) {
	other, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := other.LocalAddr().String()
	if f := doctor.Port(t.Context(), "udp4", address); f.Level != doctor.Fail || f.Remedy == "" {
		t.Errorf("a port in use: %+v", f)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if f := doctor.Port(t.Context(), "udp4", address); f.Level != doctor.OK {
		t.Errorf("after its program has ended: %+v", f)
	}
}

func TestDoctorNamesMissingBootPrograms(t *testing.T) {
	dir := t.TempDir()
	if f := checkBootPrograms("", dir); f.Level != doctor.Fail || f.Remedy != "apt install ipxe" {
		t.Errorf("an empty directory: %+v", f)
	}
	for _, name := range []string{"undionly.kpxe", "snponly.efi"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if f := checkBootPrograms("", dir); f.Level != doctor.OK {
		t.Errorf("with both: %+v", f)
	}
}

func TestDoctorNamesAMissingMediaLoader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isolinux.bin")
	if f := checkMediaLoader(path); f.Level != doctor.Fail || f.Remedy != "apt install isolinux syslinux-common" {
		t.Errorf("an empty directory: %+v", f)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f := checkMediaLoader(path); f.Level != doctor.OK {
		t.Errorf("with it: %+v", f)
	}
}

func TestDoctorNamesLackOfSpaceAndDevices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "made")
	for level, bounds := range map[doctor.Level][2]uint64{
		doctor.Fail: {1 << 62, 1 << 62}, doctor.Warn: {0, 1 << 62}, doctor.OK: {0, 0},
	} {
		if f := doctor.Space(dir, bounds[0], bounds[1], "make room"); f.Level != level ||
			(level == doctor.OK) != (f.Remedy == "") {
			t.Errorf("%s: %+v", level, f)
		}
	}
	if _, f := checkDevice("nosuchdevice"); f.Level != doctor.Fail || f.Remedy == "" {
		t.Errorf("a device that is not there: %+v", f)
	}
	if address, f := checkDevice("lo"); f.Level != doctor.OK || address != "127.0.0.1" {
		t.Errorf("loopback: %s %+v", address, f)
	}
}
