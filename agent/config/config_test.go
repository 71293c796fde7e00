package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/config"
)

func TestEveryProblemIsReported(t *testing.T) {
	t.Parallel()
	_, err := config.Parse([]byte(`
stat_dir: /x
state_dir: relative
host: virtual
role: installer
addresses: [nowhere]
proxy: https://elsewhere
sim: {script: "reboot:maybe", delay: soon, colour: red}
log: {level: loud}
`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"stat_dir", `state_dir "relative"`, `host is "virtual"`, `role is "installer"`, `addresses[0]: "nowhere"`,
		`proxy "https://elsewhere"`,
		"sim.script", "soon", "colour", "log.level",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestDefaultsAndValues(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte("host: sim\nsim: {delay: 5s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "sim" || c.Sim.Delay != 5*time.Second || c.StateDir != config.DefaultStateDir || c.Role != "host" {
		t.Fatalf("got %+v", c)
	}
	if _, err := config.Parse(nil); err != nil {
		t.Fatalf("an empty file: %v", err)
	}
	if _, err := config.Parse([]byte("host: sim\n---\nrole: site\n")); err == nil {
		t.Fatal("a second document is left out")
	}
}

func TestTheExampleOfASite(t *testing.T) {
	t.Parallel()
	c, err := config.Load("../../deploy/site.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default().Site
	want.Interfaces, want.CacheDir = []string{"eth1"}, "/var/lib/ingot-site/blobs"
	if c.Role != "site" || !reflect.DeepEqual(c.Site, want) {
		t.Errorf("got %+v", c.Site)
	}
	for text, want := range map[string]string{
		"site: {interfaces: [eth1]}":                            "role site, not host",
		"role: site\nsite: {interfaces: [averylongdevicename]}": "no name of a network device",
		"role: site\nsite: {cache_size: lots}":                  "not a size",
		"role: site\nsite: {cache_size: 99999999TiB}":           "too big",
		"role: site\nsite: {cache_size: 1MiB}":                  "under 64MiB",
		"role: site\nsite: {cache_dir: here}":                   "not an absolute path",
		"role: site\nsite: {http_port: 70000}":                  "not a port",
		"role: site\nsite: {bmc_poll: 1ms}":                     "under 1s",
		"site: {user: nobody}":                                  "role site, not host",
	} {
		if _, err := config.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
