package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// userID is of the user and the group that the programs run as: one that no distribution gives to anybody.
const userID = 65532

// kind is an image that there is.
type kind struct {
	name, title, description string
	// programs of the bin directory; the first is the entry point.
	programs []string
	command  []string
	// state is the directory that a volume keeps.
	state string
	ports []string
	// capabilities that the entry point has though its user has none, by their numbers in capabilities(7).
	capabilities []int
}

var kinds = map[string]kind{
	"controller": {
		name:        "ingot-controller",
		title:       "Ingot controller",
		description: "Keeps the truth about a fleet of machines and decides",
		programs:    []string{"ingot-controller", "ingot"},
		command:     []string{"run", "--config", "/etc/ingot/controller.yaml"},
		state:       "/var/lib/ingot-controller",
		ports:       []string{"50051/tcp", "50052/tcp", "50053/tcp", "50055/tcp", "8080/tcp"},
	},
	"agent": {
		name: "ingot-agent", title: "Ingot site agent", description: "Boots, installs and powers the machines of one site",
		programs: []string{"ingot-agent"}, command: []string{"run", "--config", "/etc/ingot/site.yaml"},
		state: "/var/lib/ingot-site", ports: []string{"67/udp", "69/udp", "4011/udp", "8080/tcp", "8082/tcp", "8083/tcp"},
		// CAP_NET_BIND_SERVICE, CAP_NET_RAW, as in deploy/systemd/ingot-site.service, which says why.
		capabilities: []int{10, 13},
	},
	"cluster-api": {
		name: "ingot-cluster-api", title: "Ingot provider of Cluster API",
		description: "Takes machines of a fleet into clusters",
		programs:    []string{"ingot-cluster-api"}, ports: []string{"8081/tcp"},
	},
	"cli": {
		name: "ingot", title: "Ingot command line", description: "Talks to an Ingot controller", programs: []string{"ingot"},
	},
}

// tag is what the specification of distribution allows as a tag ("Pulling manifests").
var tag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

type options struct {
	bin, ca, version, revision string
	created                    time.Time
}

// build makes an image of two layers: what seldom changes, and the programs.
func build(k kind, o options) (v1.Image, error) {
	base, err := baseLayer(k, o)
	if err != nil {
		return nil, err
	}
	programs, arch, err := programLayer(k, o)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		v1.Layer
		by string
	}{{base, "certificates and user"}, {programs, strings.Join(k.programs, ", ")}} {
		img, err = mutate.Append(img, mutate.Addendum{Layer: l.Layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "make oci-images", Comment: l.by}})
		if err != nil {
			return nil, err
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.Architecture, c.OS, c.Created, c.Config = arch, "linux", v1.Time{Time: o.created}, k.config(o)
	return mutate.ConfigFile(img, c)
}

func (k kind) config(o options) v1.Config {
	ports := map[string]struct{}{}
	for _, p := range k.ports {
		ports[p] = struct{}{}
	}
	c := v1.Config{
		User: fmt.Sprintf("%d:%d", userID, userID), Entrypoint: []string{"/usr/bin/" + k.programs[0]}, Cmd: k.command,
		Env: []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, WorkingDir: "/",
		ExposedPorts: ports, StopSignal: "SIGTERM", Labels: k.labels(o),
	}
	if k.state != "" {
		c.Volumes = map[string]struct{}{k.state: {}}
	}
	return c
}

// labels are those of the OCI image specification, "annotations".
func (k kind) labels(o options) map[string]string {
	const prefix = "org.opencontainers.image."
	out := map[string]string{
		prefix + "title": k.title, prefix + "description": k.description, prefix + "version": o.version,
		prefix + "created": o.created.Format(time.RFC3339), prefix + "licenses": "Apache-2.0",
		prefix + "source": "https://github.com/ingot-metal/ingot",
	}
	if o.revision != "" {
		out[prefix+"revision"] = o.revision
	}
	return out
}

// archive writes a layer; the first error stays.
type archive struct {
	bytes.Buffer
	w    *tar.Writer
	time time.Time
	err  error
}

func newArchive(at time.Time) *archive {
	a := &archive{time: at}
	a.w = tar.NewWriter(&a.Buffer)
	return a
}

func (a *archive) add(h tar.Header, content []byte) {
	if a.err != nil {
		return
	}
	h.Name = strings.TrimPrefix(h.Name, "/")
	h.ModTime, h.Size, h.Format = a.time, int64(len(content)), tar.FormatPAX
	if a.err = a.w.WriteHeader(&h); a.err == nil {
		_, a.err = a.w.Write(content)
	}
}

func (a *archive) dir(path string, mode int64, owner int) {
	a.add(tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (a *archive) file(path string, content []byte) {
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644}, content)
}

func (a *archive) layer() (v1.Layer, error) {
	if err := errors.Join(a.err, a.w.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.Bytes())), nil },
		tarball.WithMediaType(
			types.OCILayer,
		),
		tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching,
	)
}

func baseLayer(k kind, o options) (v1.Layer, error) {
	ca, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(ca, []byte("-----BEGIN CERTIFICATE-----")) {
		return nil, fmt.Errorf("%s holds no certificate", o.ca)
	}
	a := newArchive(o.created)
	for _, d := range []string{"/etc", "/etc/ingot", "/etc/ssl", "/etc/ssl/certs", "/usr", "/usr/bin", "/var", "/var/lib"} {
		a.dir(d, 0o755, 0)
	}
	a.dir("/tmp", 0o1777, 0)
	home := "/nonexistent"
	if k.state != "" {
		a.dir(k.state, 0o700, userID)
		home = k.state
	}
	a.file("/etc/passwd", fmt.Appendf(nil, "root:x:0:0:root:/nonexistent:/nonexistent\ningot:x:%d:%d:%s:%s:/nonexistent\n",
		userID, userID, k.title, home))
	a.file("/etc/group", fmt.Appendf(nil, "root:x:0:\ningot:x:%d:\n", userID))
	a.file("/etc/ssl/certs/ca-certificates.crt", ca)
	return a.layer()
}

func programLayer(k kind, o options) (layer v1.Layer, arch string, err error) {
	a := newArchive(o.created)
	for i, name := range k.programs {
		content, err := os.ReadFile(filepath.Join(o.bin, name))
		if err != nil {
			return nil, "", err
		}
		own, err := archOf(content)
		if err == nil && arch != "" && own != arch {
			err = fmt.Errorf("is for %s, others are for %s", own, arch)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		arch = own
		h := tar.Header{Typeflag: tar.TypeReg, Name: "/usr/bin/" + name, Mode: 0o755}
		if i == 0 && len(k.capabilities) > 0 {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": fileCapabilities(k.capabilities)}
		}
		a.add(h, content)
	}
	layer, err = a.layer()
	return layer, arch, err
}

// archOf returns the architecture of a program, as Go names it, and refuses one that needs what the image has not.
func archOf(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", errors.New("needs a loader; build it with CGO_ENABLED=0")
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("is for %s, which no machine of a fleet has", f.Machine)
}

// fileCapabilities is the value of the extended attribute: struct vfs_cap_data of linux/capability.h, revision 2, with
// permitted capabilities that are effective from the start.
func fileCapabilities(numbers []int) string {
	var permitted uint32
	for _, n := range numbers {
		permitted |= 1 << n
	}
	const revision2, effective = 0x02000000, 1
	out := binary.LittleEndian.AppendUint32(nil, revision2|effective)
	for _, word := range []uint32{permitted, 0, 0, 0} { // permitted and inheritable, lower half and upper half
		out = binary.LittleEndian.AppendUint32(out, word)
	}
	return string(out)
}

// write writes an archive of a layout with one image. Its files are in order, so that it is the same every time.
func write(out, ref string, img v1.Image, o options) (err error) {
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".oci-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: img,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: c.OS, Architecture: c.Architecture},
			Annotations: map[string]string{"org.opencontainers.image.ref.name": ref}}})
	tree := filepath.Join(dir, "layout")
	if _, err := layout.Write(tree, index); err != nil {
		return err
	}
	if err := writeDockerManifest(tree, ref, img); err != nil {
		return err
	}
	packed := filepath.Join(dir, "image.tar")
	if err := pack(packed, tree, o.created); err != nil {
		return err
	}
	return os.Rename(packed, out)
}

// writeDockerManifest writes the file by which `docker load` reads the layout, as in archives of `docker save`.
func writeDockerManifest(tree, ref string, img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	var layers []string
	for _, l := range m.Layers {
		layers = append(layers, blob(l.Digest))
	}
	raw, err := json.Marshal([]struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{{blob(m.Config.Digest), []string{ref}, layers}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(tree, "manifest.json"), raw, 0o644)
}

func pack(out, tree string, at time.Time) (err error) {
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var paths []string
	err = filepath.WalkDir(tree, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(paths)
	w := tar.NewWriter(f)
	for _, path := range paths {
		if err := packFile(w, tree, path, at); err != nil {
			return err
		}
	}
	return w.Close()
}

func packFile(w *tar.Writer, tree, path string, at time.Time) error {
	rel, err := filepath.Rel(tree, path)
	if err != nil {
		return err
	}
	content, err := os.Open(path)
	if err != nil {
		return err
	}
	defer content.Close()
	info, err := content.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(rel), Mode: 0o644, Size: info.Size(), ModTime: at,
		Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}
