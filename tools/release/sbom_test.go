package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// bom writes a document of this test's own binary, which is a program of Go with modules, and returns it.
func bom(t *testing.T, args ...string) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sbom.cdx.json")
	args = append(
		[]string{"sbom", "--name", "ingot-agent", "--version", "1.2.3", "--purl", "pkg:deb/ingot/ingot-agent@1.2.3",
			"--epoch", "1767225600", "--out", path},
		args...)
	if err := run(append(args, "usr/bin/ingot-agent="+self), io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSBOM has the artefact, its binary, Go, each module with the hash of go.sum, and who depends on whom.
func TestSBOM(t *testing.T) {
	text := bom(t, "--component", "pkg:deb/debian/linux@6.1.1%2B3?arch=source")
	if !bytes.Equal(text, bom(t, "--component", "pkg:deb/debian/linux@6.1.1%2B3?arch=source")) {
		t.Error("the same binary gives other bytes the second time")
	}
	var doc cdx.BOM
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.SpecVersion != cdx.SpecVersion1_5 || doc.Metadata.Timestamp != "2026-01-01T00:00:00Z" ||
		doc.Metadata.Component.Name != "ingot-agent" {
		t.Errorf("%+v", doc.Metadata)
	}
	find := func(name string) cdx.Component {
		i := slices.IndexFunc(*doc.Components, func(c cdx.Component) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("no component %s:\n%s", name, text)
		}
		return (*doc.Components)[i]
	}
	module, binary := find("github.com/CycloneDX/cyclonedx-go"), find("usr/bin/ingot-agent")
	if !strings.HasPrefix(module.PackageURL, "pkg:golang/github.com/cyclonedx/cyclonedx-go@v") || module.Hashes == nil ||
		binary.Hashes == nil || find("std").Version == "" || find("linux").Version != "6.1.1+3" {
		t.Errorf("%+v, %+v", module, binary)
	}
	depends := map[string][]string{}
	for _, d := range *doc.Dependencies {
		if d.Dependencies != nil {
			depends[d.Ref] = *d.Dependencies
		}
	}
	if !slices.Contains(depends[binary.BOMRef], module.BOMRef) ||
		!slices.Equal(depends["pkg:deb/ingot/ingot-agent@1.2.3"], []string{find("linux").BOMRef, binary.BOMRef}) {
		t.Errorf("%v", depends)
	}
}

// TestSBOMIsCycloneDX holds a document against the standard's schema.
func TestSBOMIsCycloneDX(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) any {
		raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	c := jsonschema.NewCompiler()
	for name, file := range map[string]string{"bom-1.5.schema.json": "bom-1.5.schema.json", "spdx.schema.json": "spdx.schema.json",
		"jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		if err := c.AddResource("http://cyclonedx.org/schema/"+name, read(file)); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile("http://cyclonedx.org/schema/bom-1.5.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	hold := func(text []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	text := bom(t, "--component", "pkg:deb/debian/linux@6.1.1-1")
	if err := hold(text); err != nil {
		t.Error(err)
	}
	if err := hold(bytes.ReplaceAll(text, []byte(`"application"`), []byte(`"program"`))); err == nil {
		t.Error("a component of no type of the standard passes: the schema is not used")
	}
}

// TestSBOMRefuses a file that is no program of Go, as its parts are not known.
func TestSBOMRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"sbom", "--name", "x", "--version", "1", "--purl", "pkg:generic/x@1", "--out", path + ".json"}
	for _, args := range [][]string{{path}, {path + ".gone"}, {"--component", "linux"}} {
		if err := run(append(slices.Clone(flags), args...), io.Discard); err == nil {
			t.Errorf("%v has a bill of materials", args)
		}
	}
	if err := run([]string{"sbom", "--name", "x"}, io.Discard); err == nil {
		t.Error("a bill of materials without a version was written")
	}
}
