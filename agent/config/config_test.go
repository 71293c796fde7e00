package config_test

import (
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
		"stat_dir", `state_dir "relative"`, `host is "virtual"`, `role is "installer"`, `addresses[0]: "nowhere"`, `proxy "https://elsewhere"`,
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
}
