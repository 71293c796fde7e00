package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the components of an artefact as CycloneDX 1.5 in JSON: each binary, and the modules and the Go that its
// own build information names.
func sbom(args []string, _ io.Writer) error {
	f := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := f.String("name", "", "name of the artefact")
	version := f.String("version", "", "version of the artefact")
	purl := f.String("purl", "", "package URL of the artefact")
	epoch := f.Int64("epoch", 0, "the time of the document, in seconds since 1970")
	out := f.String("out", "", "file to write")
	var others list
	f.Var(&others, "component", "package URL of a part that is no binary of Go")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "name", "version", "purl", "out"); err != nil {
		return err
	}
	b := newBill(*name, *version, *purl, time.Unix(*epoch, 0))
	for _, other := range others {
		if err := b.addPackage(other); err != nil {
			return err
		}
	}
	for _, arg := range f.Args() {
		name, path, named := strings.Cut(arg, "=")
		if !named {
			name, path = filepath.Base(arg), arg
		}
		if err := b.addBinary(name, path, *version); err != nil {
			return err
		}
	}
	text, err := b.encode()
	if err != nil {
		return err
	}
	return os.WriteFile(*out, text, 0o644)
}

// bill is a document that is being made: components and their dependencies by reference.
type bill struct {
	bom        *cdx.BOM
	root       string
	components map[string]cdx.Component
	depends    map[string][]string
}

func newBill(name, version, purl string, at time.Time) *bill {
	b := &bill{cdx.NewBOM(), purl, map[string]cdx.Component{}, map[string][]string{purl: {}}}
	b.bom.Metadata = &cdx.Metadata{
		Timestamp: at.UTC().Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeApplication, Name: name, Version: version, PackageURL: purl,
		},
	}
	return b
}

// addPackage adds a part that another one has packed, by a URL such as pkg:deb/debian/linux@6.1.
func (b *bill) addPackage(purl string) error {
	path, version, ok := strings.Cut(purl, "@")
	if !ok || !strings.HasPrefix(path, "pkg:") {
		return fmt.Errorf("--component %q is no package URL with a version", purl)
	}
	version, _, _ = strings.Cut(version, "?")
	version, err := url.PathUnescape(version)
	if err != nil {
		return err
	}
	b.add(b.root, cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path[strings.LastIndex(path, "/")+1:], Version: version,
		PackageURL: purl,
	})
	return nil
}

func (b *bill) addBinary(name, path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	binary := b.root + "#" + name
	b.add(b.root, cdx.Component{
		BOMRef: binary, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	})
	b.add(binary, library("std", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		// A module of the tree is replaced by its folder, and is the artefact itself.
		if !strings.HasPrefix(m.Path, ".") {
			b.add(binary, moduleOf(m))
		}
	}
	return nil
}

func moduleOf(m *debug.Module) cdx.Component { return library(m.Path, m.Version, m.Sum) }

// library is a module of Go. Its hash is the h1 of go.sum, as CycloneDX's own generator for Go has it.
func library(path, version, sum string) cdx.Component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B") + "?type=module"
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(raw) == sha256.Size {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	}
	return c
}

// add adds a component that another one depends on.
func (b *bill) add(to string, c cdx.Component) {
	b.components[c.BOMRef] = c
	b.depends[to] = append(b.depends[to], c.BOMRef)
	if b.depends[c.BOMRef] == nil {
		b.depends[c.BOMRef] = []string{}
	}
}

func (b *bill) encode() ([]byte, error) {
	var components []cdx.Component
	for _, ref := range slices.Sorted(maps.Keys(b.components)) {
		components = append(components, b.components[ref])
	}
	var dependencies []cdx.Dependency
	for _, ref := range slices.Sorted(maps.Keys(b.depends)) {
		on := slices.Compact(slices.Sorted(slices.Values(b.depends[ref])))
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	b.bom.Components, b.bom.Dependencies = &components, &dependencies
	var text bytes.Buffer
	err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).
		EncodeVersion(b.bom, cdx.SpecVersion1_5)
	return text.Bytes(), err
}
