package netbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/dnsname"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/label"
)

// Kind is the kind of a change.
type Kind string

// The kinds. A Conflict changes nothing, and is for a person.
const (
	Create    Kind = "create"
	Update    Kind = "update"
	SetFields Kind = "fields"
	AddNIC    Kind = "add interface"
	SetMAC    Kind = "set MAC"
	Conflict  Kind = "conflict"
)

// Change is one difference between the two sides, and its resolution.
type Change struct {
	Kind Kind
	// Subject is the machine or the device that it is about, in words.
	Subject string
	// Text describes the difference.
	Text string

	// Machine and Mask are what Create and Update send to the controller.
	Machine *pb.Machine
	Mask    []string
	// Device, Fields, NIC, Name and MAC are what the others send to NetBox.
	Device    int64
	Fields    map[string]any
	NIC       Interface
	Name, MAC string
}

func (c Change) String() string {
	side := "ingot"
	switch c.Kind {
	case SetFields, AddNIC, SetMAC:
		side = "netbox"
	case Conflict:
		return fmt.Sprintf("conflict  %s: %s", c.Subject, c.Text)
	}
	return fmt.Sprintf("%-8s  %s: %s: %s", side, c.Subject, c.Kind, c.Text)
}

// appliedLabel holds a digest of what was taken over from NetBox last.
const appliedLabel = "netbox-applied"

// externalID is how a machine names its device.
func externalID(device int64) string { return "netbox-device-" + strconv.FormatInt(device, 10) }

// deviceOf is the device that a machine names; 0 where it names none.
func deviceOf(m *pb.Machine) int64 {
	text, ok := strings.CutPrefix(m.GetSpec().GetExternalId(), "netbox-device-")
	id, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return id
}

var (
	notSite  = regexp.MustCompile(`[^a-z0-9]+`)
	notLabel = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// nameOf is the id of a device's machine, as ingot rack import makes it; empty where the name cannot be one.
func nameOf(d Device) string {
	if d.Name == nil {
		return ""
	}
	id := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(*d.Name), " ", "-"))
	if !dnsname.MachineID(id) {
		return ""
	}
	return id
}

// labelText is a text as a label's value may be: at most 63 characters.
func labelText(s string) string {
	s = strings.Trim(notLabel.ReplaceAllString(s, "-"), "-._")
	return strings.TrimRight(s[:min(len(s), 63)], "-._")
}

// Owned returns a device's values in the fields that NetBox owns, by paths of a field mask.
func Owned(d Device) map[string]string {
	out := map[string]string{"spec.site": "", "spec.rack": "", "labels.position": "", "labels.role": "",
		"labels.asset-tag": "", "labels.device-type": ""}
	if d.Site != nil {
		out["spec.site"] = strings.Trim(notSite.ReplaceAllString(strings.ToLower(d.Site.Slug), "-"), "-")
	}
	if d.Rack != nil {
		out["spec.rack"] = d.Rack.Name
	}
	if d.Position != nil {
		out["labels.position"] = strconv.FormatFloat(*d.Position, 'f', -1, 64)
	}
	if r := d.role(); r != nil {
		out["labels.role"] = labelText(r.Slug)
	}
	if d.AssetTag != nil {
		out["labels.asset-tag"] = labelText(*d.AssetTag)
	}
	if d.DeviceType != nil {
		out["labels.device-type"] = labelText(d.DeviceType.Model)
	}
	return out
}

// values are what a machine has in the fields that NetBox owns.
func values(m *pb.Machine, paths map[string]string) map[string]string {
	out := map[string]string{"spec.site": m.GetSpec().GetSite(), "spec.rack": m.GetSpec().GetRack()}
	for path := range paths {
		if key, ok := strings.CutPrefix(path, "labels."); ok {
			out[path] = m.GetLabels()[key]
		}
	}
	return out
}

func digest(v map[string]string) string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(v)) {
		fmt.Fprintf(h, "%q=%q\n", k, v[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// machine is what the controller is sent: the values at their paths.
func machine(id string, v map[string]string) *pb.Machine {
	m := &pb.Machine{MachineId: id, Labels: map[string]string{}, Spec: &pb.MachineSpec{
		Site: v["spec.site"], Rack: v["spec.rack"],
	}}
	for path, value := range v {
		if key, ok := strings.CutPrefix(path, "labels."); ok && value != "" {
			m.Labels[key] = value
		}
	}
	return m
}

// planned are the states in which a device becomes a machine.
var planned = []string{"planned", "staged", "active"}

// Ingest returns the changes of a device in the controller. bound is the machine that names the device, named the one
// of its name; either may be nil.
func Ingest(d Device, nics []Interface, bound, named *pb.Machine) []Change {
	id, subject := nameOf(d), subjectOf(d)
	conflict := func(format string, args ...any) []Change {
		return []Change{{Kind: Conflict, Subject: subject, Text: fmt.Sprintf(format, args...)}}
	}
	switch {
	case bound != nil && id != bound.GetMachineId():
		out := conflict("the machine is %s, and the ids of machines do not change", bound.GetMachineId())
		return append(out, ingestInto(d, nics, bound, subject)...)
	case bound != nil:
		return ingestInto(d, nics, bound, subject)
	case !slices.Contains(planned, d.Status.Value):
		return nil
	case id == "":
		return conflict("the name is none of a machine: %s", dnsname.MachineIDRule)
	case named == nil:
		return []Change{create(d, nics, id, subject)}
	case named.GetSpec().GetExternalId() != "":
		return conflict("machine %s is of %q already", id, named.GetSpec().GetExternalId())
	}
	return adopt(d, named, subject)
}

func subjectOf(d Device) string {
	name := "device without a name"
	if d.Name != nil {
		name = *d.Name
	}
	return fmt.Sprintf("%s (device %d)", name, d.ID)
}

func create(d Device, nics []Interface, id, subject string) Change {
	want := Owned(d)
	m := machine(id, want)
	m.Labels[appliedLabel] = digest(want)
	m.Spec.ExternalId, m.Spec.Serial, m.Spec.MacAddresses = externalID(d.ID), d.Serial, plannedMACs(nics)
	return Change{Kind: Create, Subject: subject, Text: listed(want), Machine: m, Device: d.ID}
}

// adopt binds a machine that was there before, where nothing of it contradicts.
func adopt(d Device, m *pb.Machine, subject string) []Change {
	want := Owned(d)
	have := values(m, want)
	var out []Change
	before := maps.Clone(have)
	if want["spec.rack"] != "" { // which would come before a label that names the machine's rack
		before["spec.rack"] = label.RackOf(have["spec.rack"], m.GetLabels())
	}
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if before[p] != "" && before[p] != want[p] && !defaultSite(p, before[p]) {
			out = append(out, differs(subject, p, want[p], before[p]))
		}
	}
	if had, has := hwid.Text(m.GetSpec().GetSerial()), hwid.Text(d.Serial); had != "" && has != "" &&
		!strings.EqualFold(had, has) {
		out = append(out, Change{Kind: Conflict, Subject: subject, Text: fmt.Sprintf(
			"serial is %q in NetBox, and machine %s has %q: two machines of one name", d.Serial, m.GetMachineId(), had)})
	}
	if len(out) > 0 {
		return out
	}
	c := update(m, want, have, subject)
	c.Machine.Spec.ExternalId, c.Mask = externalID(d.ID), append(c.Mask, "spec.external_id")
	return []Change{c}
}

// defaultSite reports whether a value is the site of machines without one.
func defaultSite(path, value string) bool { return path == "spec.site" && value == "default" }

func differs(subject, path, netbox, ingot string) Change {
	return Change{Kind: Conflict, Subject: subject, Text: fmt.Sprintf(
		"%s is %q in NetBox and %q in Ingot, where a person has changed it; make them equal", path, netbox, ingot)}
}

// ingestInto updates a bound machine. What was changed in the controller since the last time is a conflict.
func ingestInto(d Device, nics []Interface, m *pb.Machine, subject string) []Change {
	want := Owned(d)
	have := values(m, want)
	applied := m.GetLabels()[appliedLabel]
	var out []Change
	switch {
	case maps.Equal(want, have):
		if applied != digest(want) {
			out = append(out, update(m, want, have, subject))
		}
	case applied == digest(have):
		out = append(out, update(m, want, have, subject))
	default:
		for _, p := range slices.Sorted(maps.Keys(want)) {
			if want[p] != have[p] {
				out = append(out, differs(subject, p, want[p], have[p]))
			}
		}
	}
	// Once its agent has been there, interfaces in NetBox may be those that Report has made.
	unseen := m.GetStatus().GetAgentId() == "" && len(m.GetSpec().GetMacAddresses()) == 0
	if macs := plannedMACs(nics); unseen && len(macs) > 0 {
		out = append(out, Change{Kind: Update, Subject: subject, Text: "spec.mac_addresses " + strings.Join(macs, " "),
			Machine: &pb.Machine{MachineId: m.GetMachineId(), Version: m.GetVersion(),
				Spec: &pb.MachineSpec{MacAddresses: macs}}, Mask: []string{"spec.mac_addresses"}})
	}
	return out
}

func update(m *pb.Machine, want, have map[string]string, subject string) Change {
	out := Change{Kind: Update, Subject: subject, Machine: machine(m.GetMachineId(), want)}
	var texts []string
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if want[p] != have[p] {
			out.Mask = append(out.Mask, p)
			texts = append(texts, fmt.Sprintf("%s %q becomes %q", p, have[p], want[p]))
		}
	}
	if len(texts) == 0 {
		texts = []string{"taken over as it is"}
	}
	out.Machine.Labels[appliedLabel], out.Machine.Version = digest(want), m.GetVersion()
	out.Mask, out.Text = append(out.Mask, "labels."+appliedLabel), strings.Join(texts, ", ")
	return out
}

func listed(v map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(v)) {
		if v[k] != "" {
			out = append(out, fmt.Sprintf("%s=%s", k, v[k]))
		}
	}
	return strings.Join(out, " ")
}

// plannedMACs are those of a device's interfaces that are for more than management.
func plannedMACs(nics []Interface) (out []string) {
	for _, i := range nics {
		if i.MAC != nil && !i.MgmtOnly {
			if mac, err := hwid.MAC(*i.MAC); err == nil && !slices.Contains(out, mac) {
				out = append(out, mac)
			}
		}
	}
	return out
}

// Observed is what the controller knows of a machine.
type Observed struct {
	Machine *pb.Machine
	// Serial and NICs are of its last inventory; Seen is set when there is one.
	Seen   bool
	Serial string
	NICs   []NIC
	// Image is the name of the image on its disk, where the catalogue has one.
	Image string
	// Last is the operation that is active, or was last; nil where there was none.
	Last *pb.Operation
}

// NIC is a network interface of an inventory.
type NIC struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
}

// Report returns the changes of a machine in NetBox.
func Report(d Device, nics []Interface, o Observed) []Change {
	subject := subjectOf(d)
	out := reportFields(d, o, subject)
	if hwid.Text(d.Serial) != "" && o.Serial != "" && !hwid.SameSerial(d.Serial, o.Serial) {
		out = append(out, Change{Kind: Conflict, Subject: subject, Text: fmt.Sprintf(
			"serial is %q in NetBox, and the machine says %q: another machine, or a typing error?", d.Serial, o.Serial)})
	}
	for _, nic := range o.NICs {
		if c, ok := reportNIC(d, nics, nic, subject); ok {
			out = append(out, c)
		}
	}
	return out
}

func reportFields(d Device, o Observed, subject string) []Change {
	m := o.Machine
	want := map[string]string{
		"ingot_machine": m.GetMachineId(), "ingot_state": stateText(m), "ingot_attention": m.GetStatus().GetAttentionReason(),
		"ingot_image": cmp.Or(o.Image, m.GetStatus().GetOsImageDigest()), "ingot_operation": operationText(o.Last),
	}
	if o.Seen {
		want["ingot_serial"] = o.Serial
	}
	set := map[string]any{}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, _ := d.Fields[name].(string) // null is empty
		if have == want[name] {
			continue
		}
		set[name] = nil
		if want[name] != "" {
			set[name] = want[name]
		}
		texts = append(texts, fmt.Sprintf("%s %q becomes %q", name, have, want[name]))
	}
	if len(set) == 0 {
		return nil
	}
	return []Change{{Kind: SetFields, Subject: subject, Text: strings.Join(texts, ", "), Device: d.ID, Fields: set}}
}

func stateText(m *pb.Machine) string {
	return strings.TrimSuffix(m.GetStatus().GetEffectiveState().String(), "_IDLE")
}

func operationText(o *pb.Operation) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s", o.GetType(), o.GetPhase(), o.GetOperationId())
}

// reportNIC finds an interface by its MAC address first: planned names are seldom those of the kernel.
func reportNIC(d Device, nics []Interface, nic NIC, subject string) (Change, bool) {
	if nic.MAC == "" || nic.Name == "" {
		return Change{}, false
	}
	for _, i := range nics {
		if i.MAC != nil && hwid.SameMAC(*i.MAC, nic.MAC) {
			return Change{}, false
		}
	}
	c := Change{Subject: subject, Device: d.ID, Name: nic.Name, MAC: nic.MAC}
	at := slices.IndexFunc(nics, func(i Interface) bool { return i.Name == nic.Name })
	switch {
	case at < 0:
		c.Kind, c.Text = AddNIC, nic.Name+" "+nic.MAC
	case nics[at].MAC == nil:
		c.Kind, c.Text, c.NIC = SetMAC, nic.Name+" "+nic.MAC, nics[at]
	default:
		c.Kind = Conflict
		c.Text = fmt.Sprintf(
			"interface %s has MAC address %s in NetBox, and %s on the machine",
			nic.Name,
			*nics[at].MAC,
			nic.MAC,
		)
	}
	return c, true
}
