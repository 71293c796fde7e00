package netbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// Sync keeps both sides in step.
type Sync struct {
	NetBox *Client
	// Conn is a connection of api/client.
	Conn grpc.ClientConnInterface
	// Query selects NetBox's devices that are machines, as a query of its list of devices.
	Query url.Values
	// Provider drives new machines; empty is the controller's default.
	Provider string
	// MaxCreate bounds the machines that a pass may make: a query that NetBox does not know matches every device.
	MaxCreate int
	// DryRun prints what would change, and changes nothing.
	DryRun bool
	// Out takes a line for each change and conflict.
	Out io.Writer
	// Now is the time; nil is time.Now.
	Now func() time.Time

	machines map[string]*pb.Machine // by id
	dirty    map[string]bool        // machines whose report is due
	fleet    *client.Reconciler
	walked   time.Time
	said     map[string]bool // conflicts that were printed
}

// walkEvery is how often everything is compared again. That finds changes that were made by hand in NetBox, and those
// without a change of the machine's record.
const walkEvery = time.Hour

// Result is what a pass did, or would have done.
type Result struct{ Created, Updated, Reported, Conflicts int }

func (r Result) String() string {
	return fmt.Sprintf("%d machines created, %d updated; %d changes in NetBox; %d conflicts", r.Created, r.Updated,
		r.Reported, r.Conflicts)
}

// Pass compares both sides once. What one device or machine is refused does not hold up the others.
func (s *Sync) Pass(ctx context.Context) (Result, error) {
	var r Result
	if err := s.follow(ctx); err != nil {
		return r, err
	}
	devices, err := s.NetBox.Devices(ctx, s.Query)
	if err != nil {
		return r, err
	}
	if err := checkFields(devices); err != nil {
		return r, err
	}
	nics, err := s.NetBox.Interfaces(ctx, s.interesting(devices))
	if err != nil {
		return r, err
	}
	plan, err := s.ingest(ctx, devices, nics)
	if err != nil {
		return r, err
	}
	if err := s.apply(ctx, plan, &r); err != nil {
		return r, err
	}
	err = s.report(ctx, devices, nics, &r)
	return r, err
}

// checkFields looks whether NetBox has the custom fields.
func checkFields(devices []Device) error {
	if len(devices) == 0 {
		return nil
	}
	for _, f := range fields {
		if _, ok := devices[0].Fields[f.name]; !ok {
			return fmt.Errorf("NetBox has no custom field %s of devices: run ingot-netbox-sync --setup", f.name)
		}
	}
	return nil
}

// follow brings the copy of the fleet up to date.
func (s *Sync) follow(ctx context.Context) error {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	if s.fleet == nil || now().Sub(s.walked) > walkEvery {
		s.machines, s.dirty, s.walked = map[string]*pb.Machine{}, map[string]bool{}, now()
		s.fleet = &client.Reconciler{Conn: s.Conn, Apply: func(_ context.Context, m *pb.Machine) error {
			s.learn(m)
			return nil
		}, Walked: func(_ context.Context, ids map[string]bool) error {
			maps.DeleteFunc(s.machines, func(id string, _ *pb.Machine) bool { return !ids[id] })
			return nil
		}}
	}
	return s.fleet.Pass(ctx)
}

func (s *Sync) learn(m *pb.Machine) {
	if m.GetDeletedAt() != nil {
		delete(s.machines, m.GetMachineId())
		delete(s.dirty, m.GetMachineId())
		return
	}
	s.machines[m.GetMachineId()], s.dirty[m.GetMachineId()] = m, true
}

// bound returns the machines that name a device, by its id.
func (s *Sync) bound() map[int64]*pb.Machine {
	out := map[int64]*pb.Machine{}
	for _, m := range s.machines {
		if id := deviceOf(m); id != 0 {
			out[id] = m
		}
	}
	return out
}

// interesting are the devices whose interfaces are needed.
func (s *Sync) interesting(devices []Device) (ids []int64) {
	bound := s.bound()
	for _, d := range devices {
		m := bound[d.ID]
		if m == nil || s.dirty[m.GetMachineId()] ||
			m.GetStatus().GetAgentId() == "" && len(m.GetSpec().GetMacAddresses()) == 0 {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// ingest plans the changes in the controller.
func (s *Sync) ingest(ctx context.Context, devices []Device, nics map[int64][]Interface) ([]Change, error) {
	bound, names, there := s.bound(), map[string]int{}, map[int64]bool{}
	for _, d := range devices {
		names[nameOf(d)]++
		there[d.ID] = true
	}
	var plan []Change
	created := 0
	for _, d := range devices {
		id := nameOf(d)
		if id != "" && names[id] > 1 && bound[d.ID] == nil {
			plan = append(plan, Change{Kind: Conflict, Subject: subjectOf(d), Text: fmt.Sprintf(
				"%d devices have this name, in several sites or tenants, and ids of machines are unique", names[id])})
			continue
		}
		for _, c := range Ingest(d, nics[d.ID], bound[d.ID], s.machines[id]) {
			if c.Kind == Create {
				created++
				c.Machine.Spec.Provider = s.Provider
			}
			plan = append(plan, c)
		}
	}
	if created > s.MaxCreate {
		return nil, fmt.Errorf("%d machines would be created, more than --max-create %d; nothing was written. "+
			"NetBox leaves out what it does not know of a query: is --devices right?", created, s.MaxCreate)
	}
	gone, err := s.gone(ctx, bound, there)
	return append(plan, gone...), err
}

// gone names the machines whose devices NetBox has no more. Those that merely left the query are left alone.
func (s *Sync) gone(ctx context.Context, bound map[int64]*pb.Machine, there map[int64]bool) (out []Change, err error) {
	for _, device := range slices.Sorted(maps.Keys(bound)) {
		if there[device] {
			continue
		}
		exists, err := s.NetBox.exists(ctx, device)
		if err != nil {
			return nil, err
		}
		if id := bound[device].GetMachineId(); !exists {
			out = append(out, Change{Kind: Conflict, Subject: id, Text: fmt.Sprintf("NetBox has no device %d any more; "+
				"ingot decommission %s, if it is gone", device, id)})
		}
	}
	return out, nil
}

// apply prints a plan and carries it out.
func (s *Sync) apply(ctx context.Context, plan []Change, r *Result) error {
	for _, c := range plan {
		if c.Kind == Conflict {
			s.conflict(c, r)
			continue
		}
		fmt.Fprintln(s.Out, c)
		if !s.DryRun {
			if err := s.send(ctx, c); err != nil {
				if !refusal(err) {
					return fmt.Errorf("%s: %w", c.Subject, err)
				}
				s.conflict(Change{Kind: Conflict, Subject: c.Subject, Text: fmt.Sprintf("%s is refused: %s", c.Kind, why(err))}, r)
				continue
			}
		}
		switch c.Kind {
		case Create:
			r.Created++
		case Update:
			r.Updated++
		default:
			r.Reported++
		}
	}
	return nil
}

// conflict prints a conflict once in the life of the program.
func (s *Sync) conflict(c Change, r *Result) {
	r.Conflicts++
	if s.said == nil {
		s.said = map[string]bool{}
	}
	if line := c.String(); !s.said[line] {
		s.said[line] = true
		fmt.Fprintln(s.Out, line)
	}
}

// refusal reports whether an error is about this change alone.
func refusal(err error) bool {
	var netbox *Error
	if errors.As(err, &netbox) {
		return netbox.Status == 400 || netbox.Status == 404 || netbox.Status == 409
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied,
		codes.Aborted:
		return true
	}
	return false
}

func why(err error) string {
	if reason := client.Reason(err); reason != 0 {
		return fmt.Sprintf("%s: %s", reason, status.Convert(err).Message())
	}
	return err.Error()
}

// send carries a change out.
func (s *Sync) send(ctx context.Context, c Change) error {
	machines := pb.NewMachineServiceClient(s.Conn)
	switch c.Kind {
	case Create:
		// The device's: a run after a crash asks for the same machine.
		m, err := machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{Machine: c.Machine, CreateOnly: true,
			RequestId: client.RequestID(externalID(c.Device))})
		if err == nil {
			s.learn(m)
		}
		return err
	case Update:
		version := c.Machine.GetVersion()
		if now := s.machines[c.Machine.GetMachineId()]; now != nil {
			version = max(version, now.GetVersion()) // of an update just now
		}
		c.Machine.Version = 0
		m, err := machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{Machine: c.Machine, ExpectedVersion: version,
			UpdateMask: mask(c.Mask)})
		if err == nil {
			s.learn(m)
		}
		return err
	case SetFields:
		return s.NetBox.SetFields(ctx, c.Device, c.Fields)
	case AddNIC:
		return s.NetBox.AddInterface(ctx, c.Device, c.Name, c.MAC)
	case SetMAC:
		return s.NetBox.SetMAC(ctx, c.NIC, c.MAC)
	}
	return fmt.Errorf("there is no change of kind %q", c.Kind)
}

// report writes the changes of machines to NetBox.
func (s *Sync) report(ctx context.Context, devices []Device, nics map[int64][]Interface, r *Result) error {
	bound := s.bound()
	images, err := s.images(ctx)
	if err != nil {
		return err
	}
	for _, d := range devices {
		m := bound[d.ID]
		if m == nil || !s.dirty[m.GetMachineId()] {
			continue
		}
		o, err := s.observe(ctx, m, images)
		if err != nil {
			return err
		}
		before := r.Conflicts
		if err := s.apply(ctx, Report(d, nics[d.ID], o), r); err != nil {
			return err
		}
		// A machine without an inventory yet, or with a conflict, stays on the list for the next round.
		if !s.DryRun && (o.Seen || m.GetStatus().GetAgentId() == "") && r.Conflicts == before {
			delete(s.dirty, m.GetMachineId())
		}
	}
	return nil
}

// observe reads what the controller knows of a machine.
func (s *Sync) observe(ctx context.Context, m *pb.Machine, images map[string]string) (Observed, error) {
	o := Observed{Machine: m, Image: images[m.GetStatus().GetOsImageDigest()]}
	inventory, err := pb.NewMachineServiceClient(s.Conn).GetInventory(ctx,
		&pb.GetInventoryRequest{MachineId: m.GetMachineId()})
	switch {
	case client.Reason(err) == pb.Reason_INVENTORY_NOT_FOUND:
	case err != nil:
		return o, fmt.Errorf("read the inventory of %s: %w", m.GetMachineId(), err)
	default:
		var doc struct {
			System struct {
				Serial string `json:"serial"`
			} `json:"system"`
			NICs []NIC `json:"nics"`
		}
		if err := json.Unmarshal(inventory.GetDocument(), &doc); err != nil {
			return o, fmt.Errorf("read the inventory of %s: %w", m.GetMachineId(), err)
		}
		o.Seen, o.Serial, o.NICs = true, doc.System.Serial, doc.NICs
	}
	last, err := pb.NewOperationServiceClient(s.Conn).ListOperations(ctx,
		&pb.ListOperationsRequest{Filter: "machine_id=" + m.GetMachineId(), PageSize: 1})
	if err != nil {
		return o, fmt.Errorf("read the operations of %s: %w", m.GetMachineId(), err)
	}
	if len(last.GetOperations()) > 0 {
		o.Last = last.GetOperations()[0]
	}
	return o, nil
}

// images returns the names of images by the digest of their raw content.
func (s *Sync) images(ctx context.Context) (map[string]string, error) {
	out, request := map[string]string{}, &pb.ListImagesRequest{}
	for {
		page, err := pb.NewAdminServiceClient(s.Conn).ListImages(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list images: %w", err)
		}
		for _, i := range page.GetImages() {
			out[i.GetSha256Raw()] = i.GetImageRef()
		}
		delete(out, "")
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			return out, nil
		}
	}
}

func mask(paths []string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
