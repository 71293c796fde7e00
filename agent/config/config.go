// Package config reads the agent's configuration file. It is strict: an unknown key is an error, and all problems
// are reported at once.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// DefaultStateDir is where the state lives unless the configuration names another directory.
const DefaultStateDir = "/var/lib/ingot"

// Config is the whole file.
type Config struct {
	// StateDir holds the agent's memory and identity.
	StateDir string `yaml:"state_dir"`
	// RunDir lives as long as the machine's boot, and holds what was started in it. Without it: $RUNTIME_DIRECTORY, which
	// systemd sets, or a directory below /run.
	RunDir string `yaml:"run_dir"`
	// Host is real or sim.
	Host string `yaml:"host"`
	// Role is host or site; it must be that of the token.
	Role string `yaml:"role"`
	// Region and Provider are sent at enrolment and must fit the token's bindings.
	Region   string `yaml:"region"`
	Provider string `yaml:"provider"`
	// TokenFile holds a bootstrap token, for an agent that enrols by itself.
	TokenFile string `yaml:"token_file"`
	// Addresses, host:port, replace the fleet addresses that the controller sends at enrolment.
	Addresses []string `yaml:"addresses"`
	// Proxy, http://host:port, takes CONNECT to the controller, where there is no other way to it.
	Proxy string `yaml:"proxy"`
	// Log configures the agent's log.
	Log obs.LogConfig `yaml:"log"`
	// Traces configures where the agent's spans of operations go. The controller decides which operations are traced.
	Traces traces.Config `yaml:"traces"`
	// Site is for role site.
	Site Site `yaml:"site"`
	// Sim is for host sim, and for the provider fake of role site, which is there only when sim.dir is given.
	Sim Sim `yaml:"sim"`
}

// Sim describes the simulated world.
type Sim struct {
	// Dir is the world's directory; sim in the state directory when empty.
	Dir string `yaml:"dir"`
	// MachineID is the machine's name in the world; the state directory's base name when empty.
	MachineID string `yaml:"machine_id"`
	// Script of failures; package sim has its form.
	Script string `yaml:"script"`
	// Delay of a reboot, RepaveTime of an image write, such as 2s.
	Delay      time.Duration `yaml:"delay"`
	RepaveTime time.Duration `yaml:"repave_time"`
	// Recorder is the unix socket of a process that counts the effects on simulated machines.
	Recorder string `yaml:"recorder"`
}

// Default is what holds without a file.
func Default() Config {
	return Config{
		StateDir: DefaultStateDir, Host: "real", Role: "host", Site: defaultSite(), Traces: traces.Default(),
		Sim: Sim{Delay: 2 * time.Second, RepaveTime: 3 * time.Second},
	}
}

// Load reads the file over the defaults. The error lists every problem.
func Load(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(b)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse is Load for the content of a file.
func Parse(b []byte) (Config, error) {
	c := Default()
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	err := dec.Decode(&c)
	problems := yamlProblems(err)
	if err == nil && !errors.Is(dec.Decode(&yaml.Node{}), io.EOF) {
		problems = append(problems, errors.New(`there is more than one YAML document in the file: a line "---" begins it`))
	}
	for _, p := range c.problems() {
		problems = append(problems, errors.New(p))
	}
	return c, errors.Join(problems...)
}

// yamlProblems takes apart what the decoder has collected; it goes on behind a bad field.
func yamlProblems(err error) []error {
	var many *yaml.TypeError
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case !errors.As(err, &many):
		return []error{err}
	}
	var out []error
	for _, line := range many.Errors {
		out = append(out, errors.New(line))
	}
	return out
}

// Check returns all errors in the values, joined.
func (c Config) Check() error {
	var errs []error
	for _, p := range c.problems() {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}

func (c Config) problems() []string {
	var out []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(c.StateDir == "", "state_dir is empty")
	add(!strings.HasPrefix(c.StateDir, "/") && c.StateDir != "", "state_dir %q is not an absolute path", c.StateDir)
	add(!strings.HasPrefix(c.RunDir, "/") && c.RunDir != "", "run_dir %q is not an absolute path", c.RunDir)
	add(c.Host != "real" && c.Host != "sim", "host is %q, not real or sim", c.Host)
	add(c.Role != "host" && c.Role != "site", "role is %q, not host or site", c.Role)
	for i, a := range c.Addresses {
		h, p, err := net.SplitHostPort(a)
		add(err != nil || h == "" || p == "", "addresses[%d]: %q is not host:port", i, a)
	}
	if c.Proxy != "" {
		_, err := transport.ParseProxy(c.Proxy)
		add(err != nil, "proxy: %v", err)
	}
	c.Site.problems(c.Role, add)
	add(c.Sim.Delay < 0, "sim.delay is negative")
	add(c.Sim.RepaveTime < 0, "sim.repave_time is negative")
	_, err := sim.ParseScript(c.Sim.Script)
	add(err != nil, "sim.script: %v", err)
	for _, section := range []struct {
		name     string
		problems map[string]error
	}{{"log", c.Log.Check()}, {"traces", c.Traces.Check()}} {
		for _, field := range slices.Sorted(maps.Keys(section.problems)) {
			add(true, "%s.%s: %v", section.name, field, section.problems[field])
		}
	}
	add(!strings.HasPrefix(c.Traces.CAFile, "/") && c.Traces.CAFile != "", "traces.ca_file %q is not an absolute path",
		c.Traces.CAFile)
	return out
}
