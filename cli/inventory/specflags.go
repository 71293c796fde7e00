package inventory

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// specHelp describes each field of MachineSpec; every field has a flag of its name.
var specHelp = map[protoreflect.Name]string{
	"ssh_endpoint": "host:port of the SSH server",
	"bmc_endpoint": "host or host:port of the management controller; redfish://, redfish+http:// or ipmi:// before it " +
		"says how to speak to it; " +
		"/redfish/v1/Systems/NAME after it names one of several systems",
	"target_cluster_ref":  "cluster that the machine is meant for",
	"mac_addresses":       "MAC addresses, separated by commas",
	"provider":            "adapter that drives the machine: agent, maas or fake",
	"serial":              "chassis serial number",
	"rack":                "rack",
	"location":            "location",
	"region":              "region",
	"customer_id":         "customer's id",
	"external_id":         "the upstream's own identifier",
	"group":               "group whose policies apply",
	"site":                "site whose agent serves the machine",
	"default_image_ref":   "image used where a reimage names none",
	"bmc_credentials_ref": "name under which the BMC's credentials are stored",
	"install_disk": "which disk a reimage writes, as serial=…, wwn=…, path=…, model=…, size>=100GiB; terms " +
		"joined by commas",
	"install_mirror":  "second disk, for a RAID 1 with the first: a rule as of install_disk, or the same one",
	"install_path":    "how a reimage that names no path gets into the installer: auto, kexec, bootnext, bmc or media",
	"install_address": "address of the installer with its prefix length, where no server assigns one",
	"data_disks": "path, a space and a rule of a disk that is mounted there, as '/srv serial=S1'; may be given several " +
		"times. A reimage gives it ext4 where it is empty, and else keeps it",
	"protected_disks": "rule of disks that are never written; may be given several times",
	"ssh_host_keys": "key that the SSH server may show, as SHA256:… or as a line of authorized_keys; may be given " +
		"several times",
	"ssh_credentials_ref": "name under which the SSH credentials are stored",
	"provider_ref":        "MAAS region of a machine of provider maas",
}

// shortNames are what people type for flags whose fields have long names.
var shortNames = map[string]string{
	"mac": "mac-addresses", "bmc-credentials": "bmc-credentials-ref", "protected-disk": "protected-disks",
	"ssh-host-key": "ssh-host-keys", "ssh-credentials": "ssh-credentials-ref",
}

// specFlags are flags for every field of MachineSpec, and labels.
type specFlags struct {
	text   map[protoreflect.Name]*string
	lists  map[protoreflect.Name]*[]string
	labels []string
}

func specFields() protoreflect.FieldDescriptors {
	return (&pb.MachineSpec{}).ProtoReflect().Descriptor().Fields()
}

func flagName(field protoreflect.Name) string { return strings.ReplaceAll(string(field), "_", "-") }

func (s *specFlags) register(cmd *cobra.Command) {
	s.text, s.lists = map[protoreflect.Name]*string{}, map[protoreflect.Name]*[]string{}
	for i := range specFields().Len() {
		switch name := specFields().Get(i).Name(); name {
		case "mac_addresses":
			s.lists[name] = cmd.Flags().StringSlice(flagName(name), nil, specHelp[name])
		case "protected_disks", "ssh_host_keys": // one may hold commas
			s.lists[name] = cmd.Flags().StringArray(flagName(name), nil, specHelp[name])
		default:
			s.text[name] = cmd.Flags().String(flagName(name), "", specHelp[name])
		}
	}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if long, ok := shortNames[name]; ok {
			name = long
		}
		return pflag.NormalizedName(name)
	})
	cmd.Flags().StringArrayVar(&s.labels, "label", nil, "label as key=value; key- removes it; may be given several times")
}

// apply lays the flags that were given over the machine.
func (s *specFlags) apply(cmd *cobra.Command, m *pb.Machine) error {
	if m.Spec == nil {
		m.Spec = &pb.MachineSpec{}
	}
	spec := m.Spec.ProtoReflect()
	for i := range specFields().Len() {
		field := specFields().Get(i)
		switch {
		case !cmd.Flags().Changed(flagName(field.Name())):
		case field.IsList():
			list := spec.NewField(field).List()
			for _, v := range *s.lists[field.Name()] {
				list.Append(protoreflect.ValueOfString(v))
			}
			spec.Set(field, protoreflect.ValueOfList(list))
		default:
			spec.Set(field, protoreflect.ValueOfString(*s.text[field.Name()]))
		}
	}
	return applyLabels(m, s.labels)
}

// ofOne refuses fields that can be right for one machine alone, unless one is named.
func ofOne(cmd *cobra.Command, args []string) error {
	if _, single := new(command.Targets).Single(args); single {
		return nil
	}
	for _, field := range []protoreflect.Name{
		"mac_addresses", "serial", "external_id", "bmc_endpoint", "ssh_endpoint", "install_address",
	} {
		if cmd.Flags().Changed(flagName(field)) {
			return command.Usagef("--%s is that of one machine: name the machine", flagName(field))
		}
	}
	return nil
}

func applyLabels(m *pb.Machine, labels []string) error {
	for _, l := range labels {
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		key, value, ok := strings.Cut(l, "=")
		gone, remove := strings.CutSuffix(l, "-")
		switch {
		case ok && key != "":
			m.Labels[key] = value
		case !ok && remove && gone != "":
			delete(m.Labels, gone)
		default:
			return command.Usagef("--label %q: want key=value, or key- to remove it", l)
		}
	}
	return nil
}
