package ignition_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/ignition"
)

const network = `
network:
  version: 2
  ethernets:
    lan:
      match: {macaddress: "52:54:00:AA:00:07"}
      addresses: [10.0.0.7/24, "2001:db8::7/64"]
      gateway4: 10.0.0.1
      routes:
        - {to: default, via: "2001:db8::1"}
        - {to: 10.9.0.0/16, via: 10.0.0.254}
      nameservers: {addresses: [10.0.0.53, "2001:db8::53"], search: [lab.example, example]}
      mtu: 9000
    eno2:
      dhcp4: true
      dhcp-identifier: mac
    rest:
      match: {name: "en*"}
      dhcp4: yes
      dhcp6: yes
`

// TestNetwork: the forms are those of nm-settings-keyfile(5) and systemd.network(5).
func TestNetwork(t *testing.T) {
	all, err := ignition.ParseNetwork(network)
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	for i, want := range []struct{ keyfile, networkd string }{
		{"[connection]\nid=eno2\ntype=ethernet\ninterface-name=eno2\n\n[ethernet]\n\n" +
			"[ipv4]\nmethod=auto\ndhcp-client-id=mac\n\n[ipv6]\nmethod=auto\n\n",
			"[Match]\nName=eno2\n\n[Network]\nDHCP=ipv4\n\n[DHCPv4]\nClientIdentifier=mac\n"},
		{"[connection]\nid=lan\ntype=ethernet\n\n[ethernet]\nmac-address=52:54:00:AA:00:07\nmtu=9000\n\n" +
			"[ipv4]\naddress1=10.0.0.7/24\ngateway=10.0.0.1\nroute1=10.9.0.0/16,10.0.0.254\ndns=10.0.0.53;\n" +
			"dns-search=lab.example;example;\nmethod=manual\n\n" +
			"[ipv6]\naddress1=2001:db8::7/64\ngateway=2001:db8::1\ndns=2001:db8::53;\nmethod=manual\n\n",
			"[Match]\nMACAddress=52:54:00:aa:00:07\n\n[Link]\nMTUBytes=9000\n\n[Network]\nDHCP=no\nAddress=10.0.0.7/24\n" +
				"Address=2001:db8::7/64\nDNS=10.0.0.53\nDNS=2001:db8::53\nDomains=lab.example example\n\n" +
				"[Route]\nGateway=10.0.0.1\n\n[Route]\nGateway=2001:db8::1\n\n" +
				"[Route]\nGateway=10.0.0.254\nDestination=10.9.0.0/16\n"},
		{"[connection]\nid=rest\ntype=ethernet\n\n[match]\ninterface-name=en*;\n\n[ethernet]\n\n" +
			"[ipv4]\nmethod=auto\n\n[ipv6]\nmethod=auto\n\n",
			"[Match]\nName=en*\n\n[Network]\nDHCP=yes\n"},
	} {
		if name, got := all[i].Keyfile(); got != want.keyfile || name != "ingot-"+all[i].ID+".nmconnection" {
			t.Errorf("%s:\n%s\nnot\n%s", name, got, want.keyfile)
		}
		if name, got := all[i].Networkd(); got != want.networkd || name != "00-ingot-"+all[i].ID+".network" {
			t.Errorf("%s:\n%s\nnot\n%s", name, got, want.networkd)
		}
	}
}

func TestWhatASeedIsFor(t *testing.T) {
	t.Parallel()
	const config = `{"ignition": {"version": "3.4.0"}}`
	for name, c := range map[string]struct {
		data, network string
		is            bool
		unfit         string
	}{
		"nothing":           {},
		"Ignition":          {data: config, is: true},
		"Ignition 2":        {data: `{"ignition": {"version": "2.2.0"}}`, is: true, unfit: "not 3"},
		"cloud-init":        {data: "#cloud-config\n{}\n", unfit: "for cloud-init"},
		"other JSON":        {data: `{"hush": 1}`, unfit: "for cloud-init"},
		"network":           {network: network},
		"bonds":             {network: "version: 2\nbonds: {hush: {}}\n", unfit: "line 2"},
		"version 1":         {network: "version: 1\n", unfit: "version 2"},
		"version 1, config": {network: "version: 1\nconfig: []\n", unfit: "line 2"},
		"no YAML":           {network: "version: 2\n  a: hush: b\n", unfit: "line 2"},
		"bad address":       {network: "version: 2\nethernets: {a: {addresses: [hush]}}\n", unfit: "an address"},
		"a name that breaks out": {network: "version: 2\nethernets: {\"a\\nhush\": {dhcp4: true}}\n",
			unfit: "an interface's name"},
		"a domain that breaks out": {network: "version: 2\nethernets: {a: {nameservers: {search: [\"a\\nhush\"]}}}\n",
			unfit: "a search domain"},
		"routes of two kinds": {network: "version: 2\nethernets: {a: {routes: [{to: 10.0.0.0/8, via: \"2001:db8::1\"}]}}\n",
			unfit: "a route"},
	} {
		is, unfit := ignition.Fit(c.data, c.network)
		if is != c.is || (unfit == "") != (c.unfit == "") || !strings.Contains(unfit, c.unfit) ||
			strings.Contains(unfit, "hush") {
			t.Errorf("%s: %v, %q", name, is, unfit)
		}
	}
	if _, err := ignition.ParseNetwork("version: 3\n"); !errors.Is(err, ignition.ErrNetwork) {
		t.Errorf("%v", err)
	}
}

// TestConfigurationsAreValid by Ignition's own judgement.
func TestConfigurationsAreValid(t *testing.T) {
	for name, c := range map[string]ignition.Config{
		"empty": {},
		"all": {User: "core", Keys: []string{"ssh-ed25519 AAAA data:;base64,@apart@"},
			Merge: `{"ignition": {"version": "3.0.0"}}`,
			Files: []ignition.File{{Path: "/a", Mode: 0o644, Data: []byte("a\n<&>")},
				{Path: "/b", Mode: 0o755, Apart: true, SHA512: strings.Repeat("ab", 64)}},
			Units: []ignition.Unit{{Name: "a.service", Contents: "[Service]\nExecStart=/b\n", Enabled: true,
				Dropins: []ignition.Dropin{{Name: "b.conf", Contents: "[Unit]\n"}}}}},
	} {
		before, after, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		whole := string(before)
		if len(c.Files) > 0 {
			whole += "aGVsbG8=" + string(after)
		}
		if apart := strings.HasSuffix(string(before), "base64,"); apart != (len(c.Files) > 0) || apart == (len(after) == 0) {
			t.Errorf("%s: %s, %s", name, before, after)
		}
		cmd := exec.Command("ignition-validate", "-")
		cmd.Stdin = strings.NewReader(whole)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: ignition-validate (Debian package ignition): %v: %s\n%s", name, err, out, before)
		}
	}
}
