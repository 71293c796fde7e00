// Package firstboot adds the files of the first boot on this machine to an operating system as its vendor ships it.
// These are a seed for cloud-init (data source NoCloud) or a configuration for Ignition, and the agent with its units.
// Without an agent it is the order to phone home. It works on the mounted file system and returns the list of what it
// wrote.
//
// # State model
//
// Inspect reads the tree and reports its system. Files returns the files to add. Write writes it; Verify reads it back.
//
// # Failure handling
//
// The tree is a stranger's: all paths are resolved inside it (os.Root), and a symbolic link that leads out of it is an
// error. Nothing here is undone: a tree that was written in part is never booted, because the partition table is
// written after it.
package firstboot

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/ignition"
)

//go:embed files
var embedded embed.FS

// Seed is what the new system is given for its first boot. It is secret.
type Seed struct {
	// Hostname is that of the machine where the seed names none.
	Hostname       string
	AuthorizedKeys []string
	UserData       string
	// NetworkConfig is cloud-init's; Network, or DHCP, on the interface MAC when empty.
	NetworkConfig string
}

// String keeps it out of logs.
func (Seed) String() string { return "[secret]" }

// GoString keeps it out of logs too.
func (Seed) GoString() string { return "[secret]" }

// Asks reports whether the seed holds what only cloud-init can carry out.
func (s Seed) Asks() bool {
	return len(s.AuthorizedKeys) > 0 || s.UserData != "" || s.NetworkConfig != ""
}

// Config is the order: what Files adds.
type Config struct {
	Seed Seed
	// InstanceID distinguishes this installation from every other: cloud-init runs once for each.
	InstanceID string
	// MAC is the address of the interface that the installer was booted from.
	MAC string
	// Network is the machine's on that interface where there is no DHCP server; nil: by DHCP.
	Network *Network
	// Program is the path of the agent's static binary.
	Program string
	// StateID is the PARTUUID of the state partition.
	StateID string
	// PhoneHome is the URL that cloud-init posts to when the system is up. It is secret. Where it is set, nothing of the
	// agent is added.
	PhoneHome string
	// Mirror: the system lies on a RAID 1, which its own mdadm must start.
	Mirror bool
	// Mounts are the data disks of the machine.
	Mounts []Mount
}

// agentless reports whether the system gets no agent.
func (c Config) agentless() bool { return c.PhoneHome != "" }

// System is what Inspect found in a root file system.
type System struct {
	// ID is that of os-release, such as "debian".
	ID string
	// CloudInit and Growpart report whether those programs are there; Systemd whether systemd is its init.
	CloudInit, Growpart, Systemd bool
	// Agent reports whether the agent is baked in, and mounts the state partition by itself.
	Agent bool
	// Mdadm reports whether it can start a software RAID.
	Mdadm bool
}

// ErrNoSystem is returned when a file system is not the root of an operating system.
var ErrNoSystem = errors.New("no operating system")

// Inspect reads what the tree is. It fails with ErrNoSystem where it is no root file system.
func Inspect(tree *os.Root) (System, error) {
	var s System
	release, err := tree.ReadFile("usr/lib/os-release")
	if err != nil {
		if release, err = tree.ReadFile("etc/os-release"); err != nil {
			return s, ErrNoSystem
		}
	}
	if !exists(tree, "etc", "") {
		return s, ErrNoSystem
	}
	for line := range strings.Lines(string(release)) {
		if id, ok := strings.CutPrefix(line, "ID="); ok {
			s.ID = strings.Trim(strings.TrimSpace(id), `"'`)
		}
	}
	s.CloudInit = exists(tree, "usr/bin/cloud-init", "usr/local/bin/cloud-init")
	s.Growpart = exists(tree, "usr/bin/growpart", "usr/sbin/growpart")
	s.Mdadm = exists(tree, "usr/sbin/mdadm", "sbin/mdadm")
	s.Systemd = exists(tree, "usr/lib/systemd/systemd", "lib/systemd/systemd")
	fstab, err := tree.ReadFile("etc/fstab")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read etc/fstab: %w", err)
	}
	s.Agent = bytes.Contains(fstab, []byte("LABEL=INGOT-STATE"))
	return s, nil
}

func exists(tree *os.Root, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if name == "" {
			return false
		}
		_, err := tree.Lstat(name)
		return err == nil
	})
}

// ErrUnsupported is returned when the system cannot carry out the seed, or cannot hold the agent.
var ErrUnsupported = errors.New("the image's system does not support this")

// File is a file to add. Its content is Data, the file Source outside of the tree, a link to Link, or the bytes of
// Stream, at most Most.
type File struct {
	Path   string
	Mode   fs.FileMode
	Data   []byte
	Source string
	Link   string
	Stream func() (io.ReadCloser, error)
	Most   int64
}

// Change names a file that was added, without its content.
type Change struct {
	Path   string `json:"path"`
	Mode   string `json:"mode"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Directories and files in the new system.
const (
	seedDir    = "var/lib/cloud/seed/nocloud/"
	sourceFile = "etc/cloud/cloud.cfg.d/99_ingot.cfg"
	unitDir    = "etc/systemd/system/"
	program    = "usr/bin/ingot-agent"
	starter    = "usr/lib/ingot/start-agent"
	// stateLabel is the name of the state partition, and of its file system.
	stateLabel = "INGOT-STATE"
)

// Files decides what the system needs. A system with the agent in it and nothing asked of it needs nothing.
func (s System) Files(c Config) ([]File, error) {
	files, err := s.files(c)
	if err == nil && len(c.Mounts) > 0 && !s.Systemd {
		return nil, fmt.Errorf("%w: its init is not systemd, which mounts data disks", ErrUnsupported)
	}
	return append(files, mountUnits(c.Mounts)...), err
}

func (s System) files(c Config) ([]File, error) {
	var files []File
	if is, _ := ignition.Check(c.Seed.UserData); is {
		return nil, notIgnition()
	}
	switch {
	case c.Mirror && !s.Mdadm:
		return nil, fmt.Errorf("%w: it has no mdadm, which starts the mirror", ErrUnsupported)
	case c.agentless() && !s.CloudInit:
		return nil, fmt.Errorf("%w: it has no cloud-init, which must phone home", ErrUnsupported)
	case c.agentless() && s.Agent:
		return nil, fmt.Errorf("%w: the agent is baked into it, and it is to be installed without one", ErrUnsupported)
	case c.agentless():
		return c.nocloud(), nil
	}
	if !s.CloudInit && c.Seed.Asks() {
		return nil, fmt.Errorf("%w: it has no cloud-init, which ssh keys, user-data and network configurations need",
			ErrUnsupported)
	}
	if s.CloudInit && (!s.Agent || c.Seed.Asks()) {
		files = append(files, c.nocloud()...)
	}
	if !s.CloudInit && !s.Agent {
		files = append(files, text("etc/hostname", 0o644, c.Seed.Hostname+"\n"))
	}
	if s.Agent {
		return files, nil
	}
	if !s.Systemd {
		return nil, fmt.Errorf("%w: its init is not systemd, and the agent is started by it", ErrUnsupported)
	}
	return append(files, c.agent()...), nil
}

func text(path string, mode fs.FileMode, data string) File {
	return File{Path: path, Mode: mode, Data: []byte(data)}
}

// nocloud is the seed directory of cloud-init's data source NoCloud, and the order to use no other source: a server on
// the network could answer as one.
func (c Config) nocloud() []File {
	seed := c.SeedFiles()
	out := []File{text(sourceFile, 0o644, "# Written at the installation.\ndatasource_list: [ NoCloud, None ]\n")}
	for _, name := range []string{"meta-data", "user-data", "vendor-data", "network-config"} {
		out = append(out, text(seedDir+name, 0o600, seed[name]))
	}
	return out
}

// SeedFiles are the files of a NoCloud seed by their names (cloud-init, "NoCloud").
func (c Config) SeedFiles() map[string]string {
	meta := map[string]any{"instance-id": c.InstanceID}
	if c.Seed.Hostname != "" {
		meta["local-hostname"] = c.Seed.Hostname
	}
	if len(c.Seed.AuthorizedKeys) > 0 {
		meta["public-keys"] = c.Seed.AuthorizedKeys
	}
	encoded, _ := json.Marshal(meta) // strings always encode; JSON is YAML
	user := c.Seed.UserData
	if user == "" {
		user = "#cloud-config\n{}\n"
	}
	network := c.Seed.NetworkConfig
	if network == "" {
		network = c.defaultNetwork()
	}
	return map[string]string{
		"meta-data": string(encoded) + "\n", "user-data": user, "vendor-data": c.vendorData(), "network-config": network,
	}
}

// phoneHomeTries is how often cloud-init posts, 3 s apart: a site agent may be restarting.
const phoneHomeTries = 100

// vendorData is what user-data goes before, and does not replace. An agentless system phones home by it (cloud-init,
// "Phone Home").
func (c Config) vendorData() string {
	config := map[string]any{}
	if c.agentless() {
		config["phone_home"] = map[string]any{
			"url": c.PhoneHome, "post": []string{"instance_id", "hostname", "fqdn", "pub_key_ed25519"}, "tries": phoneHomeTries,
		}
	}
	encoded, _ := json.Marshal(config) // strings and numbers always encode; JSON is YAML
	return "#cloud-config\n" + string(encoded) + "\n"
}

// agent is the program, its units as the package ingot-agent has them, and the mount of its state.
func (c Config) agent() []File {
	mount := strings.ReplaceAll(content("var-lib-ingot.mount"), "@STATE@", c.StateID)
	return []File{
		{Path: program, Mode: 0o755, Source: c.Program},
		text(starter, 0o755, content("start-agent")),
		text(unitDir+"ingot-agent.service", 0o644, content("ingot-agent.service")),
		text(unitDir+"ingot-firewall.service", 0o644, content("ingot-firewall.service")),
		text(unitDir+"ingot-rollback.service", 0o644, content("ingot-rollback.service")),
		text(unitDir+"ingot-agent.service.d/image.conf", 0o644, content("image.conf")),
		text(unitDir+"var-lib-ingot.mount", 0o644, mount),
		text("etc/ingot/agent.yaml", 0o644, "# The settings of the installation are in /var/lib/ingot/agent.yaml.\n"),
		{Path: unitDir + "multi-user.target.wants/ingot-agent.service", Link: "/" + unitDir + "ingot-agent.service"},
		{Path: unitDir + "sysinit.target.wants/ingot-firewall.service", Link: "/" + unitDir + "ingot-firewall.service"},
	}
}

// content returns an embedded file; one that is missing is a fault of the build, which the tests notice.
func content(name string) string {
	b, err := embedded.ReadFile("files/" + name)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Size is how many bytes the files need.
func Size(files []File) (sum int64, err error) {
	const block = 4096
	for _, f := range files {
		size := int64(len(f.Data)) + f.Most
		if f.Source != "" {
			info, err := os.Stat(f.Source)
			if err != nil {
				return 0, fmt.Errorf("size of %s: %w", f.Path, err)
			}
			size = info.Size()
		}
		sum += (size+block-1)/block*block + 2*block
	}
	return sum, nil
}

// Write writes the files into the tree and returns what they are. Each is durable when the file system is synced.
func Write(tree *os.Root, files []File) ([]Change, error) {
	out := make([]Change, 0, len(files))
	for _, f := range files {
		c, err := write(tree, f)
		if err != nil {
			return out, fmt.Errorf("add %s: %w", f.Path, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func write(tree *os.Root, f File) (Change, error) {
	if err := makeDirs(tree, path.Dir(f.Path), f.Mode&0o077 == 0 && f.Link == ""); err != nil {
		return Change{}, err
	}
	if err := tree.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, err
	}
	if f.Link != "" {
		return f.change(sha256.Sum256([]byte(f.Link)), int64(len(f.Link))), tree.Symlink(f.Link, f.Path)
	}
	src, err := f.open()
	if err != nil {
		return Change{}, err
	}
	defer src.Close() // only read
	dst, err := tree.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode)
	if err != nil {
		return Change{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(dst, sum), src)
	// The process's umask has no say in what the new system finds.
	err = errors.Join(err, dst.Chmod(f.Mode), dst.Close(), labelLike(tree, f.Path))
	return f.change([sha256.Size]byte(sum.Sum(nil)), n), err
}

func (f File) open() (io.ReadCloser, error) {
	switch {
	case f.Stream != nil:
		return f.Stream()
	case f.Source != "":
		return os.Open(f.Source)
	}
	return io.NopCloser(bytes.NewReader(f.Data)), nil
}

func (f File) change(sum [sha256.Size]byte, size int64) Change {
	mode := fmt.Sprintf("%04o", f.Mode.Perm())
	if f.Link != "" {
		mode = "link"
	}
	return Change{Path: "/" + f.Path, Mode: mode, Size: size, SHA256: hex.EncodeToString(sum[:])}
}

// makeDirs makes the directories that are missing; private ones are closed to others.
func makeDirs(tree *os.Root, dir string, private bool) error {
	if dir == "." {
		return nil
	}
	if _, err := tree.Stat(dir); err == nil {
		return nil
	}
	if err := makeDirs(tree, path.Dir(dir), false); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if private {
		mode = 0o700
	}
	if err := tree.Mkdir(dir, mode); err != nil {
		return err
	}
	return errors.Join(tree.Chmod(dir, mode), labelLike(tree, dir))
}

// ErrDiffers is returned when a file does not read back as it was written.
var ErrDiffers = errors.New("reads back differently")

// Verify reads the changes back and compares their digests.
func Verify(tree *os.Root, changes []Change) error {
	for _, c := range changes {
		got, err := readBack(tree, c)
		if err != nil {
			return fmt.Errorf("read back %s: %w", c.Path, err)
		}
		if got != c {
			return fmt.Errorf("%s %w", c.Path, ErrDiffers)
		}
	}
	return nil
}

func readBack(tree *os.Root, c Change) (Change, error) {
	name := strings.TrimPrefix(c.Path, "/")
	info, err := tree.Lstat(name)
	if err != nil {
		return Change{}, err
	}
	f := File{Path: name, Mode: info.Mode()}
	if info.Mode()&fs.ModeSymlink != 0 {
		if f.Link, err = tree.Readlink(name); err != nil {
			return Change{}, err
		}
		return f.change(sha256.Sum256([]byte(f.Link)), int64(len(f.Link))), nil
	}
	src, err := tree.Open(name)
	if err != nil {
		return Change{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, src)
	return f.change([sha256.Size]byte(sum.Sum(nil)), n), errors.Join(err, src.Close())
}
