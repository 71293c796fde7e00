package redfish_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// Recorded answers of real services are no part of the project. Set a directory of them, one service in each folder, to
// try the adapter against those too. Without it only the shapes under testdata are used.
var recorded = flag.String("redfish-data", os.Getenv("REDFISH_DATA"),
	"directory with recorded answers of Redfish services")

// documents reads every JSON document below dir, by what it calls itself. Several that call themselves the same, such
// as one system on different days, are variants: each is in a set of its own with all the others.
func documents(t *testing.T, dir string) []map[string]map[string]any {
	t.Helper()
	first, variants := map[string]map[string]any{}, []map[string]map[string]any{}
	add := func(id string, doc map[string]any) {
		if first[id] == nil {
			first[id] = doc
			return
		}
		variants = append(variants, map[string]map[string]any{id: doc})
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var doc map[string]any
		if json.Unmarshal(text, &doc) != nil {
			return nil // an array, or none of theirs
		}
		if id, ok := doc["@odata.id"].(string); ok {
			add(strings.TrimSuffix(id, "/"), doc)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sets := []map[string]map[string]any{first}
	for _, v := range variants {
		set := maps.Clone(first)
		maps.Copy(set, v)
		sets = append(sets, set)
	}
	return sets
}

func services(t *testing.T) map[string][]map[string]map[string]any {
	t.Helper()
	out := map[string][]map[string]map[string]any{}
	if *recorded == "" {
		for _, file := range []string{"dell-like.json", "dmtf-like.json"} {
			out[file] = []map[string]map[string]any{loadShape(t, file).docs}
		}
		return out
	}
	dirs, err := os.ReadDir(*recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() {
			out[d.Name()] = documents(t, filepath.Join(*recorded, d.Name()))
		}
	}
	return out
}

// canSwitch reports whether the system has the action at all, and brings it to a state to begin with.
func canSwitch(docs map[string]map[string]any) bool {
	for id, doc := range docs {
		if actions, ok := doc["Actions"].(map[string]any); ok && strings.Contains(id, "/Systems/") &&
			actions["#ComputerSystem.Reset"] != nil {
			doc["PowerState"] = "On"
			return true
		}
	}
	return false
}

// hasOverride reports whether a system, or its settings, has a boot override.
func hasOverride(docs map[string]map[string]any) bool {
	for id, doc := range docs {
		if boot, ok := doc["Boot"].(map[string]any); ok && strings.Contains(id, "/Systems/") &&
			(boot["BootSourceOverrideTarget"] != nil || boot["BootSourceOverrideEnabled"] != nil) {
			return true
		}
	}
	return false
}

// Each service is read, switched, and has its boot device set, or reports that it can't.
func TestRecordedServices(t *testing.T) {
	t.Parallel()
	for name, sets := range services(t) {
		for _, docs := range sets {
			t.Run(name, func(t *testing.T) {
				s := serveShape(t, docs)
				c := s.open(t)
				switchable := canSwitch(docs)
				if switchable {
					switches(t, c)
				} else if err := c.Switch(t.Context(), provider.SwitchOff); !errors.Is(err, effect.ErrUnsupported) {
					t.Errorf("switch a system without the action: %v", err)
				}
				_, err := c.SetBootOnce(t.Context(), provider.BootPXE)
				override := !errors.Is(err, effect.ErrUnsupported)
				if override && err != nil || override != hasOverride(docs) {
					t.Errorf("boot from PXE: %v", err)
				}
				if d, err := c.BootOnce(t.Context()); err != nil || d.Once(provider.BootPXE) != override {
					t.Errorf("boot device reads %+v, %v", d, err)
				}
				sensors, err := c.Sensors(t.Context())
				if err != nil {
					t.Errorf("sensors: %v", err)
				}
				events, err := c.EventLog(t.Context(), 5)
				posts, patches := s.asked()
				t.Logf("%d documents, %d sensors, %d events (%v), resets %q, patches %q", len(docs), len(sensors), len(events), err,
					posts, patches)
				if slices.Contains(posts, "ForceOff") != switchable || (len(patches) > 0) != override {
					t.Errorf("resets %q, patches %q", posts, patches)
				}
			})
		}
	}
}
