package firstboot

import (
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/ignition"
	"github.com/ingot-metal/ingot/internal/task"
)

// Vendor is a kind of image that Ignition sets up at its first boot, by a file on one of its file systems.
type Vendor struct {
	// Name goes into the evidence.
	Name string
	// Label is that of the file system, and Path the file on it.
	Label, Path string
	// stamp is a file that is there until the first boot; "": none is.
	stamp string
	// partition is the name of another partition that the image has; "": none is asked for.
	partition string
	networkd  bool
}

// defaultUser is the one that those images log in by (Fedora CoreOS, "Configuring Users"; Flatcar, "Customizing the SSH
// daemon").
const defaultUser = "core"

// Vendors of images that are known.
var vendors = []Vendor{
	// Fedora CoreOS and RHEL CoreOS: coreos/coreos-installer, src/install.rs, write_ignition and write_firstboot_kargs;
	// coreos/fedora-coreos-config, coreos-ignition-setup-user.sh.
	{Name: "coreos", Label: "boot", Path: "ignition/config.ign", stamp: "ignition.firstboot"},
	// Flatcar: flatcar/init, bin/flatcar-install, write_ignition; flatcar/bootengine, ignition-setup.sh;
	// flatcar/scripts, build_library/disk_layout.json.
	{Name: "flatcar", Label: "OEM", Path: "config.ign", partition: "USR-A", networkd: true},
}

// MayConfigure reports whether a file system of this label may be the one that Ignition reads.
func MayConfigure(label string) bool {
	return slices.ContainsFunc(vendors, func(v Vendor) bool { return v.Label == label })
}

// VendorOf tells by a file system, its label and the partitions of the image whose image it is; nil: none that Ignition
// sets up.
func VendorOf(label string, tree *os.Root, all []gpt.Partition) *Vendor {
	for _, v := range vendors {
		if v.Label == label && (v.stamp == "" || exists(tree, v.stamp)) && (v.partition == "" || named(all, v.partition)) {
			return &v
		}
	}
	return nil
}

func named(all []gpt.Partition, names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(p gpt.Partition) bool { return p.Name == name }) {
			return false
		}
	}
	return true
}

// ErrSeed is returned when the image's system cannot take the seed, whatever is on the disk.
var ErrSeed = errors.New("the image cannot be given this seed")

// For has the properties of a seed that are known before its content.
type For struct {
	// Ignition: its user-data is a configuration of Ignition.
	Ignition bool
	// Unfit is why a system that Ignition sets up cannot be given it; "": it can.
	Unfit string
}

// unmade is the disk's GUID of an image of CoreOS that was not booted yet (coreos/coreos-assembler,
// src/create_disk.sh, uninitialized_gpt_uuid).
const unmade = "00000000-0000-4000-a000-000000000001"

// Fits refuses a seed for an image by the partition table alone, before anything is written. An image that the table
// does not identify passes.
func (f For) Fits(disk gpt.GUID, all []gpt.Partition) error {
	flatcar := named(all, "OEM", "USR-A")
	coreOS := named(all, "boot", "root")
	switch {
	case f.Unfit != "" && (flatcar || coreOS && disk.String() == unmade):
		return unfit(f.Unfit)
	case f.Ignition && !flatcar && !coreOS:
		return notIgnition()
	}
	return nil
}

func unfit(why string) error {
	return fmt.Errorf(
		"%w: the image is set up by Ignition, and %s; give user-data that is a configuration of Ignition 3, "+
			"such as butane makes, with what else the system needs in it",
		ErrSeed,
		why,
	)
}

func notIgnition() error {
	return fmt.Errorf("%w: the user-data is a configuration of Ignition, and the image is not set up by Ignition; give "+
		"user-data for cloud-init, such as #cloud-config", ErrSeed)
}

// Places of what a system is given whose /usr is read-only. SELinux knows programs in a directory bin below /opt.
const (
	writableDir  = "/opt/ingot/bin/"
	phoneProgram = writableDir + "phone-home"
)

// Ignition decides which files are added to an image of the vendor: the configuration, and those that make the boot
// loader read it. The tree is the file system that Ignition reads.
func (v Vendor) Ignition(tree *os.Root, c Config) ([]File, error) {
	if c.Mirror || len(c.Mounts) > 0 {
		return nil, fmt.Errorf("%w: it is set up by Ignition, which makes mirrors and file systems itself; ask for them in "+
			"its configuration", ErrUnsupported)
	}
	if _, why := ignition.Fit(c.Seed.UserData, c.Seed.NetworkConfig); why != "" {
		return nil, unfit(why)
	}
	out := ignition.Config{User: defaultUser, Keys: c.Seed.AuthorizedKeys, Merge: c.Seed.UserData}
	if c.Seed.Hostname != "" {
		out.Files = append(out.Files, plainFile("/etc/hostname", 0o644, c.Seed.Hostname+"\n"))
	}
	network, err := v.network(c)
	if err != nil {
		return nil, err
	}
	out.Files = append(out.Files, network...)
	source := ""
	if c.agentless() {
		out.Files = append(out.Files, plainFile(phoneProgram, 0o700, c.phoneScript()))
		out.Units = append(out.Units, ignition.Unit{Name: "ingot-phone-home.service", Enabled: true,
			Contents: content("ingot-phone-home.service")})
	} else {
		source = c.Program
		if err := addAgent(&out, c); err != nil {
			return nil, err
		}
	}
	config, err := configFile(v.Path, out, source)
	if err != nil {
		return nil, err
	}
	entries, err := metalEntries(tree)
	return append([]File{config}, entries...), err
}

func plainFile(path string, mode int, data string) ignition.File {
	return ignition.File{Path: path, Mode: mode, Data: []byte(data)}
}

// network returns the files that configure the interfaces. Without settings in the seed or from the installer the
// vendor's own default applies: DHCP everywhere.
func (v Vendor) network(c Config) (out []ignition.File, err error) {
	text := c.Seed.NetworkConfig
	if text == "" && (c.MAC != "" || c.Network != nil) {
		text = c.defaultNetwork()
	}
	all, err := ignition.ParseNetwork(text)
	if err != nil {
		return nil, unfit(err.Error())
	}
	for _, i := range all {
		dir, mode := "/etc/NetworkManager/system-connections/", 0o600
		name, data := i.Keyfile()
		if v.networkd {
			dir, mode = "/etc/systemd/network/", 0o644
			name, data = i.Networkd()
		}
		out = append(out, plainFile(dir+name, mode, data))
	}
	return out, nil
}

// addAgent adds the files of the agent as units of systemd and as files outside of /usr. The first boot of CoreOS
// changes the partitions' GUIDs, so that the state partition is found by its name.
func addAgent(out *ignition.Config, c Config) error {
	units := map[string]*ignition.Unit{}
	var names []string
	at := func(name string) *ignition.Unit {
		if units[name] == nil {
			units[name] = &ignition.Unit{Name: name}
			names = append(names, name)
		}
		return units[name]
	}
	move := strings.NewReplacer("/"+program, writableDir+path.Base(program), "/"+starter, writableDir+path.Base(starter),
		"/dev/disk/by-partuuid/"+c.StateID, "/dev/disk/by-partlabel/"+stateLabel)
	for _, f := range c.agent() {
		text := move.Replace(string(f.Data))
		name, isUnit := strings.CutPrefix(f.Path, unitDir)
		dir, file := path.Split(name)
		switch {
		case f.Source != "":
			sum, err := digestOf(f.Source)
			if err != nil {
				return err
			}
			out.Files = append(out.Files, ignition.File{Path: writableDir + path.Base(f.Path), Mode: int(f.Mode.Perm()),
				Apart: true, SHA512: sum})
		case isUnit && f.Link != "":
			at(file).Enabled = true
		case isUnit && dir != "":
			u := at(strings.TrimSuffix(dir, ".d/"))
			u.Dropins = append(u.Dropins, ignition.Dropin{Name: file, Contents: text})
		case isUnit:
			at(file).Contents = text
		default:
			out.Files = append(out.Files, plainFile(move.Replace("/"+f.Path), int(f.Mode.Perm()), text))
		}
	}
	for _, name := range names {
		out.Units = append(out.Units, *units[name])
	}
	return nil
}

func digestOf(name string) (string, error) {
	src, err := os.Open(name)
	if err != nil {
		return "", err
	}
	sum := sha512.New()
	_, err = io.Copy(sum, src)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, src.Close())
}

// configFile is the configuration with the program in it, which is read while it is written: it is larger than what an
// installer should hold.
func configFile(name string, c ignition.Config, source string) (File, error) {
	before, after, err := c.Encode()
	if err != nil {
		return File{}, err
	}
	f := File{Path: name, Mode: 0o600, Data: before}
	if source == "" {
		return f, nil
	}
	info, err := os.Stat(source)
	if err != nil {
		return f, err
	}
	f.Data = nil
	f.Most = int64(len(before)+len(after)) + info.Size()*3/2 // base64, and a program that cannot be compressed
	f.Stream = func() (io.ReadCloser, error) {
		src, err := os.Open(source)
		if err != nil {
			return nil, err
		}
		r, w := io.Pipe()
		task.Background("write configuration", func() {
			_, err := w.Write(before)
			b := base64.NewEncoder(base64.StdEncoding, w)
			z := gzip.NewWriter(b)
			if err == nil {
				_, err = io.Copy(z, src)
			}
			err = errors.Join(err, z.Close(), b.Close(), src.Close())
			if err == nil {
				_, err = w.Write(after)
			}
			w.CloseWithError(err)
		})
		return r, nil
	}
	return f, nil
}

// phoneScript posts what cloud-init's module phone_home would, until the site's agent takes it.
func (c Config) phoneScript() string {
	return strings.NewReplacer("@URL@", c.PhoneHome, "@INSTANCE@", c.InstanceID).Replace(content("phone-home"))
}

// platform is the kernel parameter by which Ignition knows where it runs (coreos/ignition, ignition-generator).
var platform = regexp.MustCompile(`\bignition\.platform\.id=[^\s"]+`)

// metalEntries are the entries of the boot loader that say another platform than bare metal, corrected: there is no
// cloud to ask. coreos-installer does the opposite to the same lines (src/install.rs, write_platform).
func metalEntries(tree *os.Root) (out []File, err error) {
	const dir = "loader/entries"
	all, err := fs.ReadDir(tree.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the boot loader's entries: %w", err)
	}
	for _, e := range all {
		name := path.Join(dir, e.Name())
		if path.Ext(name) != ".conf" {
			continue
		}
		was, err := tree.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the boot loader's entries: %w", err)
		}
		if is := platform.ReplaceAll(was, []byte("ignition.platform.id=metal")); string(is) != string(was) {
			out = append(out, text(name, 0o644, string(is)))
		}
	}
	return out, nil
}
