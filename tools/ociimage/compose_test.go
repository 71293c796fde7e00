package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// settings are what the file's head asks for.
var settings = map[string]string{
	"INGOT_VERSION":           version,
	"INGOT_NAME":              "ctl.example.org",
	"INGOT_DATABASE_PASSWORD": "secret",
	"INGOT_SITE_INTERFACE":    "site0",
}

// kindOf says which image a service runs.
var kindOf = map[string]string{"controller": "controller", "site": "agent"}

// load reads deploy/compose.yaml as docker compose does: against the schema of the Compose specification, with every
// reference resolved.
func load(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	path, err := filepath.Abs("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: filepath.Dir(path), Environment: env,
		ConfigFiles: []types.ConfigFile{{Filename: path}}}, func(o *loader.Options) { o.Profiles = []string{"site"} })
}

func mustLoad(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, settings)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func service(t *testing.T, p *types.Project, name string) types.ServiceConfig {
	t.Helper()
	s, err := p.GetService(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTheFileFitsTheImages: image, state, configuration, ports and rights of each service.
func TestTheFileFitsTheImages(t *testing.T) {
	p := mustLoad(t)
	if got := p.ServiceNames(); !slices.Equal(got, []string{"controller", "postgres", "site"}) {
		t.Errorf("services %v", got)
	}
	for name, kind := range kindOf {
		s, c := service(t, p, name), configOf(t, kind)
		if s.Image != kinds[kind].name+":"+version {
			t.Errorf("%s: image %s", name, s.Image)
		}
		for state := range c.Config.Volumes {
			if !slices.ContainsFunc(
				s.Volumes,
				func(v types.ServiceVolumeConfig) bool { return v.Target == state && v.Type == "volume" },
			) {
				t.Errorf("%s: no volume at %s", name, state)
			}
		}
		mounted := c.Config.Cmd[len(c.Config.Cmd)-1]
		if !slices.ContainsFunc(s.Configs, func(c types.ServiceConfigObjConfig) bool { return c.Target == mounted }) {
			t.Errorf("%s: no configuration at %s", name, mounted)
		}
		var ports []string
		for _, port := range s.Ports {
			ports = append(ports, port.Published+"/"+port.Protocol)
		}
		slices.Sort(ports)
		var exposed []string
		for port := range c.Config.ExposedPorts {
			exposed = append(exposed, port)
		}
		slices.Sort(exposed)
		if s.NetworkMode != "host" && !slices.Equal(ports, exposed) {
			t.Errorf("%s: ports %v of the file, %v of the image", name, ports, exposed)
		}
		// Compose refuses to start it (github.com/docker/compose/pull/12531).
		if s.ReadOnly && slices.ContainsFunc(s.Configs, func(c types.ServiceConfigObjConfig) bool {
			return p.Configs[c.Source].File == ""
		}) {
			t.Errorf("%s: read-only, and a configuration that is no file", name)
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || s.Privileged || s.User != "" {
			t.Errorf("%s: more rights than it needs", name)
		}
	}
}

func TestTheFileSaysWhatIsMissing(t *testing.T) {
	for _, missing := range []string{"INGOT_VERSION", "INGOT_NAME", "INGOT_DATABASE_PASSWORD"} {
		less := map[string]string{}
		for key, value := range settings {
			if key != missing {
				less[key] = value
			}
		}
		if _, err := load(t, less); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

// TestTheProgramsKnowTheVariables: each variable of a service is one that a program of its image reads.
func TestTheProgramsKnowTheVariables(t *testing.T) {
	p := mustLoad(t)
	for name, kind := range kindOf {
		for key := range service(t, p, name).Environment {
			known := false
			for _, program := range kinds[kind].programs {
				raw, err := os.ReadFile(filepath.Join(os.Getenv(programsVariable), program))
				if err != nil {
					t.Fatal(err)
				}
				known = known || strings.Contains(string(raw), key)
			}
			if !known {
				t.Errorf("%s: no program knows %s", name, key)
			}
		}
	}
}

// TestTheConfigurationsAreStrict: a key that the program does not know would be found by running it, and is.
func TestTheConfigurationsAreStrict(t *testing.T) {
	p := mustLoad(t)
	file := filepath.Join(t.TempDir(), "controller.yaml")
	text := p.Configs["controller"].Content + "not_a_key: 1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(
		t.Context(),
		filepath.Join(os.Getenv(programsVariable), "ingot-controller"),
		"config",
		"check",
		"--config",
		file,
	)
	cmd.Env = []string{"INGOT_DATABASE_URL=" + *service(t, p, "controller").Environment["INGOT_DATABASE_URL"]}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not_a_key") {
		t.Errorf("%v\n%s", err, out)
	}
}
