package validate

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/fieldmask"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

const maxMACs = 64

// NewMachine is Machine for a registration, which may bring a new identifier.
func NewMachine(path string, m *baremetalv1.Machine) (*baremetalv1.Machine, error) {
	if err := NewID(path+".machine_id", m.GetMachineId()); err != nil {
		return nil, err
	}
	return Machine(path, m)
}

// MachineMask checks the paths of a field mask over a machine.
func MachineMask(path string, paths []string) error {
	if len(paths) > maxPaths {
		return Fault(path, "more than %d paths", maxPaths)
	}
	if f := fieldmask.Check(paths, validLabelKey); f != nil {
		return Fault(path, "%q %s; labels, labels.KEY, spec, spec.FIELD and * are paths", shown(f.Path), f.Why)
	}
	return nil
}

// maxPaths bounds a field mask: every label and every field of a spec may stand in one.
const maxPaths = 256

// Machine checks a client's machine and returns a copy with the MAC addresses normalized, without the fields that
// clients cannot write. path is the machine's name in the request.
func Machine(path string, m *baremetalv1.Machine) (*baremetalv1.Machine, error) {
	if m == nil {
		return nil, Fault(path, "required")
	}
	out := &baremetalv1.Machine{
		MachineId: m.GetMachineId(), Labels: m.GetLabels(), Version: m.GetVersion(), Spec: &baremetalv1.MachineSpec{},
	}
	proto.Merge(out.Spec, m.GetSpec())
	var f faults
	f.add(path+".machine_id", text(m.GetMachineId(), maxText))
	if m.GetVersion() < 0 {
		f.add(path+".version", "not negative")
	}
	labels(&f, path+".labels", m.GetLabels())
	spec(&f, path+".spec", out.GetSpec())
	return out, f.err()
}

func spec(f *faults, path string, s *baremetalv1.MachineSpec) {
	f.add(path+".ssh_endpoint", endpoint(s.GetSshEndpoint()))
	f.add(path+".bmc_endpoint", bmcEndpoint(s.GetBmcEndpoint()))
	if len(s.GetMacAddresses()) > maxMACs {
		f.add(path+".mac_addresses", "more than 64 addresses")
	} else {
		s.MacAddresses = macs(f, path+".mac_addresses", s.GetMacAddresses())
	}
	f.add(path+".provider", name(s.GetProvider()))
	f.add(path+".site", name(s.GetSite()))
	f.add(path+".default_image_ref", imageRef(s.GetDefaultImageRef()))
	f.add(path+".install_disk", diskRule(s.GetInstallDisk()))
	f.add(path+".install_mirror", diskRule(s.GetInstallMirror()))
	f.add(path+".install_path", among(s.GetInstallPath(), append([]string{""}, kind.InstallerPaths...)...))
	f.add(path+".install_address", installAddress(s.GetInstallAddress()))
	dataDisks(f, path+".data_disks", s.GetDataDisks())
	protectedDisks(f, path+".protected_disks", s.GetProtectedDisks())
	hostKeys(f, path+".ssh_host_keys", s.GetSshHostKeys())
	for _, t := range []struct{ field, value string }{
		{"target_cluster_ref", s.GetTargetClusterRef()}, {"serial", s.GetSerial()}, {"rack", s.GetRack()},
		{"location", s.GetLocation()}, {"region", s.GetRegion()}, {"customer_id", s.GetCustomerId()},
		{"external_id", s.GetExternalId()}, {"group", s.GetGroup()}, {"bmc_credentials_ref", s.GetBmcCredentialsRef()},
		{"ssh_credentials_ref", s.GetSshCredentialsRef()},
	} {
		f.add(path+"."+t.field, text(t.value, maxText))
	}
}

// bmcEndpoint is an endpoint that may say how the BMC is spoken to.
func bmcEndpoint(s string) string {
	at, err := bmcaddr.Parse(s)
	if errors.Is(err, bmcaddr.ErrMetadata) {
		return "can't be the endpoint of a BMC: " + err.Error()
	}
	if err == nil && at.System != "" {
		s = strings.TrimSuffix(strings.TrimSuffix(s, "/"), at.System)
	}
	for _, scheme := range []string{"redfish://", "redfish+http://", "ipmi://"} {
		if rest, ok := strings.CutPrefix(s, scheme); ok && rest != "" {
			if wrong := endpoint(rest); wrong != "" {
				return "after " + scheme + " it " + wrong
			}
			return ""
		}
	}
	if wrong := endpoint(s); wrong != "" {
		return wrong + ", and may begin with redfish://, redfish+http:// or ipmi://"
	}
	return ""
}

// Name checks a short name such as a site's; empty is fine.
func Name(path, s string) error {
	var f faults
	f.add(path, name(s))
	return f.err()
}

func name(s string) string {
	if s == "" || nameForm.MatchString(s) {
		return ""
	}
	return "1 to 63 characters of a-z, 0-9 and inner -"
}

func imageRef(s string) string {
	if len(s) > maxText || !printableASCII(s) || strings.Contains(s, " ") {
		return "at most 255 printable ASCII characters without spaces"
	}
	return ""
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
