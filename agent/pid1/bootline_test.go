package pid1

import (
	"errors"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseBootLine(t *testing.T) {
	t.Parallel()
	const installer = "ingot.role=installer ingot.site=http://192.0.2.1:8080 ingot.token=t "
	want := bootLine{role: RoleInstaller, site: "http://192.0.2.1:8080", token: "t"}
	withMAC := want
	withMAC.mac = "52:54:00:ab:cd:ef"
	six := want
	six.site = "http://[2001:db8::1]:80"
	for line, want := range map[string]bootLine{
		"":                            {},
		"quiet panic=5 console=ttyS0": {},
		"ingot.net=dhcp":              {net: NetDHCP},
		installer + "\n":              want,
		installer + "ingot.site=http://[2001:db8::1]:80/":                     six,
		installer + "BOOTIF=01-52-54-00-AB-CD-EF":                             withMAC,
		installer + "BOOTIF=01-52-54-00-00-00-00 ingot.mac=52:54:00:ab:cd:ef": withMAC,
		"ingot.token=old " + installer + "quiet":                              want,
	} {
		if got, err := parseBootLine(line); err != nil || got != want {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

func TestParseBootLineRefuses(t *testing.T) {
	t.Parallel()
	for line, says := range map[string][]string{
		"ingot.role=king":      {ParamRole, "king"},
		"ingot.net=static":     {ParamNet},
		"ingot.role=installer": {ParamSite, ParamToken},
		"ingot.role=installer ingot.token=t ingot.site=https://192.0.2.1":    {ParamSite},
		"ingot.role=installer ingot.token=t ingot.site=http://192.0.2.1/dir": {ParamSite},
		"ingot.mac=52:54:00":       {"52:54:00"},
		"BOOTIF=01-52-54-00-00-00": {"52-54-00-00-00"},
	} {
		_, err := parseBootLine(line)
		if !errors.Is(err, ErrBootLine) {
			t.Errorf("%q: %v", line, err)
			continue
		}
		for _, part := range says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v does not say %s", line, err, part)
			}
		}
	}
}

func TestInstallerIsHandedOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "installer.json")
	if got, err := readInstaller(path); got != nil || err != nil {
		t.Errorf("on a host: %+v, %v", got, err)
	}
	want := Installer{
		Site: "http://192.0.2.1:80", Token: "t", Interface: "eth0", MAC: "52:54:00:ab:cd:ef",
		Address: netip.MustParsePrefix("192.0.2.7/24"),
	}
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	if got, err := readInstaller(path); err != nil || got == nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
