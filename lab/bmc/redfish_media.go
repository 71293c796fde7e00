package bmc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"
)

// Media is how a service attaches images (DSP2046, VirtualMedia). The zero value has one drive under the manager, and
// both actions. What services do otherwise is from github.com/openstack/sushy, sushy/resources/manager/virtual_media.py
// ("sushy"), and github.com/ansible-collections/community.general, plugins/module_utils/redfish_utils.py ("community").
type Media struct {
	// None: there is no virtual media, as without a licence for it.
	None bool
	// Names are those of the drives; "Cd" when empty. Floppy: the first is none that takes a CD (iLO).
	Names  []string
	Floppy bool
	// OfSystem: the drives are the system's. Source: github.com/dell/terraform-provider-redfish, issue 331 (iDRAC).
	OfSystem bool
	// NoAction: the properties are written with PATCH and the entity tag; Inserted must be among them (sushy: Lenovo
	// SD530).
	NoAction bool
	// OEM: the actions are the vendor's, of before there was a standard: "Hp" (iLO 4).
	OEM string
	// ImageOnly: an order with Inserted or WriteProtected is refused (sushy: Supermicro X11; community: iLO 4).
	ImageOnly bool
	// ProtocolNeeded and MethodNeeded: an order without TransferProtocolType, or TransferMethod, is refused (sushy).
	ProtocolNeeded, MethodNeeded bool
	// SecureOnly: http is refused. Source: github.com/openbmc/bmcweb, redfish-core/lib/virtual_media.hpp, which takes
	// https and smb.
	SecureOnly bool
	// Occupied is the status with which an order is refused while an image is attached; 0: the new one takes its place.
	Occupied int
	// NameOnly: the last part of the URL is shown alone.
	NameOnly bool
	// Stale: after an ejection the image still shows, not connected. Source:
	// github.com/ansible-collections/community.general, issue 6969 and pull request 7470 (Supermicro).
	Stale bool
	// Late is how many reads go by before an image shows, or is gone.
	Late int
}

func (m Media) names() []string {
	if len(m.Names) == 0 {
		return []string{"Cd"}
	}
	return m.Names
}

// mediaState has the image of each drive.
type mediaState struct {
	mu     sync.Mutex
	drives map[string]*drive
	// refuses is the status of every ejection; 0: it is done.
	refuses int
	ejected int
}

type drive struct {
	image, file string
	attached    bool
	// foreign was attached at the BMC's own console.
	foreign bool
	// late counts the reads that still show what was before.
	late      int
	wasImage  string
	wasInside bool
}

func (s *mediaState) of(name string) *drive {
	if s.drives == nil {
		s.drives = map[string]*drive{}
	}
	if s.drives[name] == nil {
		s.drives[name] = &drive{}
	}
	return s.drives[name]
}

func (s *mediaState) forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, d := range s.drives {
		if d.file != "" {
			errs = append(errs, os.Remove(d.file))
			d.file = ""
		}
	}
	return errors.Join(errs...)
}

// AttachForeign attaches an image as a user does at the BMC's own console, to all drives.
func (r *Redfish) AttachForeign(image string) {
	r.media.mu.Lock()
	defer r.media.mu.Unlock()
	for _, name := range r.cfg.Shape.Media.names() {
		*r.media.of(name) = drive{image: image, attached: true, foreign: true}
	}
}

// Attached returns the URLs of the images that are attached.
func (r *Redfish) Attached() (out []string) {
	r.media.mu.Lock()
	defer r.media.mu.Unlock()
	for _, d := range r.media.drives {
		if d.attached {
			out = append(out, d.image)
		}
	}
	return out
}

// RefuseEjections answers every ejection with the status from now on; 0 ends that.
func (r *Redfish) RefuseEjections(status int) {
	r.media.mu.Lock()
	defer r.media.mu.Unlock()
	r.media.refuses = status
}

// Ejections counts those that were done.
func (r *Redfish) Ejections() int {
	r.media.mu.Lock()
	defer r.media.mu.Unlock()
	return r.media.ejected
}

func (r *Redfish) hasMedia() bool {
	_, ok := r.cfg.Chassis.(Drive)
	return ok && !r.cfg.Shape.Media.None
}

func (r *Redfish) mediaPath() string {
	if r.cfg.Shape.Media.OfSystem {
		return r.cfg.Shape.system() + "/VirtualMedia"
	}
	return managerPath + "/VirtualMedia"
}

const (
	insertPart, ejectPart = "/Actions/VirtualMedia.InsertMedia", "/Actions/VirtualMedia.EjectMedia"
	hpInsertPart          = "/Actions/Oem/Hp/HpiLOVirtualMedia.InsertVirtualMedia"
	hpEjectPart           = "/Actions/Oem/Hp/HpiLOVirtualMedia.EjectVirtualMedia"
)

func (r *Redfish) mediaRoutes(mux *http.ServeMux) {
	if !r.hasMedia() {
		return
	}
	at, shape := r.mediaPath(), r.cfg.Shape.Media
	mux.HandleFunc("GET "+at, func(w http.ResponseWriter, req *http.Request) {
		var paths []string
		for _, name := range shape.names() {
			paths = append(paths, at+"/"+name)
		}
		r.answer(w, req, r.cfg.Shape.page(collection(at, "VirtualMedia", "Virtual Media Collection",
			r.cfg.Shape.haunted(at, paths)), req))
	})
	for _, name := range shape.names() {
		p := at + "/" + name
		mux.HandleFunc("GET "+p, func(w http.ResponseWriter, req *http.Request) { r.answer(w, req, r.drive(name, true)) })
		insert := func(w http.ResponseWriter, req *http.Request) { r.insertMedia(w, req, name) }
		eject := func(w http.ResponseWriter, req *http.Request) { r.ejectMedia(w, req, name) }
		switch {
		case shape.NoAction:
			mux.HandleFunc("PATCH "+p, func(w http.ResponseWriter, req *http.Request) { r.patchMedia(w, req, name) })
		case shape.OEM != "":
			mux.HandleFunc("POST "+p+hpInsertPart, insert)
			mux.HandleFunc("POST "+p+hpEjectPart, eject)
		default:
			mux.HandleFunc("POST "+p+insertPart, insert)
			mux.HandleFunc("POST "+p+ejectPart, eject)
		}
	}
}

// drive returns the document of one; each read counts a late change down.
func (r *Redfish) drive(name string, read bool) object {
	r.media.mu.Lock()
	defer r.media.mu.Unlock()
	shape, p, d := r.cfg.Shape.Media, r.mediaPath()+"/"+name, r.media.of(name)
	image, inside := d.image, d.attached
	if d.late > 0 {
		image, inside = d.wasImage, d.wasInside
		if read {
			d.late--
		}
	}
	types := []string{"CD", "DVD"}
	if shape.Floppy && name == shape.names()[0] {
		types = []string{"Floppy", "USBStick"}
	}
	doc := entity(p, "VirtualMedia.v1_6_0.VirtualMedia", name, object{
		"MediaTypes": types, "Image": nil, "ImageName": nil, "Inserted": false, "ConnectedVia": "NotConnected",
		"WriteProtected": nil,
	})
	if inside {
		doc["Image"], doc["ImageName"], doc["Inserted"], doc["ConnectedVia"] = image, path.Base(image), true, "URI"
		doc["WriteProtected"] = true
		if shape.NameOnly {
			doc["Image"] = path.Base(image)
		}
		if d.foreign {
			doc["Image"], doc["ConnectedVia"] = nil, "Applet"
		}
	} else if shape.Stale && image != "" {
		doc["Image"], doc["Inserted"] = image, true
	}
	action := func(part string) object { return object{"target": p + part} }
	switch {
	case shape.NoAction:
	case shape.OEM != "":
		doc["Oem"] = object{shape.OEM: object{"Actions": object{
			"#HpiLOVirtualMedia.InsertVirtualMedia": action(hpInsertPart),
			"#HpiLOVirtualMedia.EjectVirtualMedia":  action(hpEjectPart),
		}}}
	default:
		doc["Actions"] = object{
			"#VirtualMedia.InsertMedia": action(insertPart), "#VirtualMedia.EjectMedia": action(ejectPart),
		}
	}
	return doc
}

// readMedia reads a body into its properties.
func readMedia(w http.ResponseWriter, req *http.Request) (in map[string]any, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body was malformed JSON.")
		return nil, false
	}
	return in, true
}

// wrong returns a service's error for an order; empty: none.
func (m Media) wrong(in map[string]any) (id, message string) {
	image, _ := in["Image"].(string)
	_, inserted := in["Inserted"]
	_, protected := in["WriteProtected"]
	switch {
	case m.ImageOnly && (inserted || protected):
		return "ActionParameterUnknown", "The action was submitted with the invalid parameter Inserted."
	case m.ProtocolNeeded && in["TransferProtocolType"] == nil:
		return "ActionParameterMissing", "The action requires the parameter TransferProtocolType to be present."
	case m.MethodNeeded && in["TransferMethod"] == nil:
		return "GeneralError", "TransferMethod is missing."
	case m.SecureOnly && !strings.HasPrefix(image, "https://"), !strings.HasPrefix(image, "http"):
		return "ActionParameterValueFormatError", "The value '" + image + "' for the parameter Image is of a different format " +
			"than the parameter can accept."
	}
	return "", ""
}

func (r *Redfish) insertMedia(w http.ResponseWriter, req *http.Request, name string) {
	in, ok := readMedia(w, req)
	if !ok {
		return
	}
	r.attach(w, req, name, in)
}

// attach fetches the image, as a BMC does that keeps it in memory, and puts it into the machine's drive.
func (r *Redfish) attach(w http.ResponseWriter, req *http.Request, name string, in map[string]any) {
	if id, message := r.cfg.Shape.Media.wrong(in); id != "" {
		refuse(w, http.StatusBadRequest, id, message)
		return
	}
	r.media.mu.Lock()
	occupied := r.media.of(name).attached
	r.media.mu.Unlock()
	if status := r.cfg.Shape.Media.Occupied; occupied && status != 0 {
		refuse(w, status, "GeneralError", "The Virtual Media image server is already connected.")
		return
	}
	if r.desk.lying() {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	image := in["Image"].(string)
	file, err := r.fetch(req.Context(), image)
	if err == nil {
		err = r.cfg.Chassis.(Drive).Insert(req.Context(), file)
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, "ResourceAtUriUnauthorized", "While attempting to reach the image: "+
			err.Error())
		return
	}
	r.media.mu.Lock()
	r.media.of(name).become(image, file, true, r.cfg.Shape.Media.Late)
	r.media.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// become replaces the image in the drive, which shows after some reads.
func (d *drive) become(image, file string, attached bool, late int) {
	old := d.file
	*d = drive{image: image, file: file, attached: attached, late: late, wasImage: d.image, wasInside: d.attached}
	if old != "" && old != file {
		_ = os.Remove(old) // a temporary file
	}
}

func (r *Redfish) ejectMedia(w http.ResponseWriter, req *http.Request, name string) {
	r.media.mu.Lock()
	status, attached := r.media.refuses, r.media.of(name).attached
	r.media.mu.Unlock()
	if !attached && r.cfg.Shape.Media.Occupied != 0 && status == 0 {
		status = r.cfg.Shape.Media.Occupied
	}
	if status != 0 {
		refuse(w, status, "GeneralError", "No Virtual Media devices are currently connected, or they are busy.")
		return
	}
	if err := r.cfg.Chassis.(Drive).Eject(req.Context()); err != nil {
		chassisFailed(w, err)
		return
	}
	r.media.mu.Lock()
	defer r.media.mu.Unlock()
	d, image := r.media.of(name), ""
	if r.cfg.Shape.Media.Stale {
		image = d.image
	}
	d.become(image, "", false, r.cfg.Shape.Media.Late)
	r.media.ejected++
	w.WriteHeader(http.StatusNoContent)
}

// patchMedia is for services without actions: an image attaches with Inserted, and goes without.
func (r *Redfish) patchMedia(w http.ResponseWriter, req *http.Request, name string) {
	if want := req.Header.Get("If-Match"); want != etag(r.drive(name, false)) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "The ETag supplied did not match the current ETag.")
		return
	}
	in, ok := readMedia(w, req)
	if !ok {
		return
	}
	switch image, inserted := in["Image"].(string); {
	case inserted && image != "" && in["Inserted"] != true:
		writeJSON(w, http.StatusOK, r.drive(name, false)) // taken, and not attached
	case inserted && image != "":
		r.attach(w, req, name, in)
	default:
		r.ejectMedia(w, req, name)
	}
}

// fetchLimit is how long an image may take.
const fetchLimit = 2 * time.Minute

// fetch gets all of an image, in two ranges: a BMC asks for parts, and first for the length.
func (r *Redfish) fetch(ctx context.Context, image string) (file string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as BMCs do
	defer transport.CloseIdleConnections()
	if dial := r.cfg.Dial; dial != nil {
		transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }
	}
	client := &http.Client{Transport: transport}
	size, err := headOf(ctx, client, image)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(r.cfg.MediaDir, "media-*.iso")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	for _, span := range [][2]int64{{size / 2, size}, {0, size / 2}} {
		if err := rangeOf(ctx, client, image, f, span); err != nil {
			return "", err
		}
	}
	return f.Name(), nil
}

func headOf(ctx context.Context, client *http.Client, image string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, image, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	if err := resp.Body.Close(); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK || resp.ContentLength < 2 {
		return 0, fmt.Errorf("the server answers %s with a length of %d", resp.Status, resp.ContentLength)
	}
	return resp.ContentLength, nil
}

func rangeOf(ctx context.Context, client *http.Client, image string, f *os.File, span [2]int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, image, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", span[0], span[1]-1))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent {
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	n, err := io.Copy(io.NewOffsetWriter(f, span[0]), resp.Body)
	if err == nil && n != span[1]-span[0] {
		err = io.ErrUnexpectedEOF
	}
	return err
}
