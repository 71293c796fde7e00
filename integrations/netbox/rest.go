package netbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/version"
	"github.com/ingot-metal/ingot/internal/when"
)

const (
	// pageSize is below NetBox's default for MAX_PAGE_SIZE, 1000.
	pageSize = 500
	// maxBody bounds an answer.
	maxBody = 64 << 20
	// tries is how often a call is sent while NetBox is away.
	tries = 6
)

// Config is the connection to NetBox, and its token.
type Config struct {
	// URL is where NetBox's pages begin, such as https://netbox.example.net.
	URL string
	// CAFile is a PEM file with the root of its certificate. Empty: the system's roots.
	CAFile string
	// Token is an API token, of version 1 or 2.
	Token string
}

// Client speaks NetBox's REST API, of versions 3.1 to 4.
type Client struct {
	base, token string
	http        *http.Client
	// Version is NetBox's own version.
	Version string
	// macObjects: MAC addresses are objects of their own, since 4.2.
	macObjects bool
	// objectTypes is the name of a custom field's list of models.
	objectTypes string
}

// Error is an answer that refuses.
type Error struct {
	Method, Path string
	Status       int
	// Text is the answer: NetBox names fields, or sends "detail".
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s of NetBox: %d: %s", e.Method, e.Path, e.Status, e.Text)
}

// Dial asks NetBox for its version.
func Dial(ctx context.Context, c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("the address of NetBox is %q, and no URL such as https://netbox.example.net", c.URL)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 2}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the root of NetBox's certificate: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	keyword := "Token "
	if strings.HasPrefix(c.Token, "nbt_") {
		keyword = "Bearer " // version 2, since 4.5
	}
	n := &Client{base: strings.TrimRight(c.URL, "/") + "/api", token: keyword + c.Token,
		http: &http.Client{Transport: transport, Timeout: time.Minute}}
	var status struct {
		Version string `json:"netbox-version"`
	}
	if err := n.call(ctx, http.MethodGet, "/status/", nil, &status); err != nil {
		return nil, err
	}
	return n, n.is(status.Version)
}

// is notes what a version has.
func (n *Client) is(text string) error {
	v, ok := version.Parse(text)
	switch {
	case !ok:
		return fmt.Errorf("NetBox returns %q as its version", text)
	case !v.AtLeast(3, 1):
		return fmt.Errorf("NetBox is of version %s, and 3.1 is the oldest that this program knows", text)
	}
	n.Version, n.objectTypes = text, "content_types"
	if v.AtLeast(4, 0) {
		n.objectTypes = "object_types"
	}
	n.macObjects = v.AtLeast(4, 2)
	return nil
}

// call sends a request until NetBox answers it. Reads and changes may be sent twice. So may creations: NetBox refuses
// the repeat, or the next run finds it.
func (n *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s %s of NetBox: %w", method, path, err)
		}
	}
	wait := 250 * time.Millisecond
	for try := 1; ; try++ {
		after, err := n.once(ctx, method, path, body, out)
		if err == nil || after < 0 || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-clock.Real().After(max(wait, after)):
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// once sends a request once. It returns how long NetBox asks to wait before a repeat, less than 0 where none helps.
func (n *Client) once(ctx context.Context, method, path string, body []byte, out any) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.base+path, bytes.NewReader(body))
	if err != nil {
		return -1, fmt.Errorf("%s %s of NetBox: %w", method, path, err)
	}
	req.Header.Set("Authorization", n.token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := n.http.Do(req)
	if err != nil {
		var unknown *tls.CertificateVerificationError
		if errors.As(err, &unknown) || ctx.Err() != nil {
			return -1, err
		}
		return 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return 0, fmt.Errorf("%s %s of NetBox: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		refused := &Error{Method: method, Path: path, Status: resp.StatusCode, Text: short(string(raw))}
		switch resp.StatusCode {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return when.RetryAfter(resp.Header.Get("Retry-After"), time.Now(), time.Minute), refused
		}
		return -1, refused
	}
	if out == nil {
		return -1, nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return -1, fmt.Errorf("%s %s of NetBox: the answer is no JSON, is this the address of NetBox? %w", method, path, err)
	}
	return -1, nil
}

func short(s string) string {
	s = strings.TrimSpace(s)
	return s[:min(len(s), 500)]
}

// mostRows bounds the rows that are read of one kind.
const mostRows = 1_000_000

// list reads all pages. It counts by itself: NetBox's "next" names the host that it believes to have, which is another
// one behind many proxies. A row that moves over the edge of a page meanwhile may come twice.
func list[T any](ctx context.Context, n *Client, path string, query url.Values) (all []T, err error) {
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	q.Set("limit", strconv.Itoa(pageSize))
	for {
		q.Set("offset", strconv.Itoa(len(all)))
		var page struct {
			Count   int     `json:"count"`
			Next    *string `json:"next"`
			Results []T     `json:"results"`
		}
		if err := n.call(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Results...)
		switch {
		case page.Next == nil:
			return all, nil
		case len(page.Results) == 0:
			return nil, fmt.Errorf("%s of NetBox: it has %d entries, and a page after the first %d is empty", path, page.Count,
				len(all))
		case len(all) > mostRows:
			return nil, fmt.Errorf("%s of NetBox: more than %d entries", path, mostRows)
		}
	}
}

// Ref is another object, as NetBox shows it inside of one.
type Ref struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Slug  string `json:"slug"`
	Model string `json:"model"`
}

// Device is one of NetBox's.
type Device struct {
	ID     int64   `json:"id"`
	Name   *string `json:"name"`
	Status struct {
		Value string `json:"value"`
	} `json:"status"`
	Serial     string   `json:"serial"`
	AssetTag   *string  `json:"asset_tag"`
	Position   *float64 `json:"position"`
	Site       *Ref     `json:"site"`
	Rack       *Ref     `json:"rack"`
	Role       *Ref     `json:"role"`
	OldRole    *Ref     `json:"device_role"` // up to 3.5
	DeviceType *Ref     `json:"device_type"`
	// Fields are the custom fields by name; null where none was given.
	Fields map[string]any `json:"custom_fields"`
}

// role is the device's role, whatever the version calls it.
func (d Device) role() *Ref { return cmp.Or(d.Role, d.OldRole) }

// Interface is one of a device.
type Interface struct {
	ID       int64   `json:"id"`
	Device   Ref     `json:"device"`
	Name     string  `json:"name"`
	MAC      *string `json:"mac_address"`
	MgmtOnly bool    `json:"mgmt_only"`
	// MACs are all addresses of it, since 4.2; one of them may be the primary one, which MAC shows.
	MACs []struct {
		ID  int64  `json:"id"`
		MAC string `json:"mac_address"`
	} `json:"mac_addresses"`
}

// Devices are those that match a query of NetBox's list, each once.
func (n *Client) Devices(ctx context.Context, query url.Values) ([]Device, error) {
	q := url.Values{"exclude": {"config_context"}}
	for k, v := range query {
		q[k] = v
	}
	all, err := list[Device](ctx, n, "/dcim/devices/", q)
	seen, out := map[int64]bool{}, all[:0]
	for _, d := range all {
		if !seen[d.ID] {
			seen[d.ID] = true
			out = append(out, d)
		}
	}
	return out, err
}

// exists reports whether there is such a device at all.
func (n *Client) exists(ctx context.Context, id int64) (bool, error) {
	err := n.call(ctx, http.MethodGet, fmt.Sprintf("/dcim/devices/%d/?exclude=config_context", id), nil, &Device{})
	var refused *Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

// Interfaces are those of some devices, by the device's id.
func (n *Client) Interfaces(ctx context.Context, devices []int64) (map[int64][]Interface, error) {
	const atOnce = 50 // ids in one query: the line of a request is bounded
	out := map[int64][]Interface{}
	for len(devices) > 0 {
		some := devices[:min(atOnce, len(devices))]
		devices = devices[len(some):]
		q := url.Values{}
		for _, id := range some {
			q.Add("device_id", strconv.FormatInt(id, 10))
		}
		all, err := list[Interface](ctx, n, "/dcim/interfaces/", q)
		if err != nil {
			return nil, err
		}
		for _, i := range all {
			out[i.Device.ID] = append(out[i.Device.ID], i)
		}
	}
	return out, nil
}

// SetFields writes custom fields of a device. Those that are not named stay.
func (n *Client) SetFields(ctx context.Context, device int64, fields map[string]any) error {
	return n.call(ctx, http.MethodPatch, fmt.Sprintf("/dcim/devices/%d/", device),
		map[string]any{"custom_fields": fields}, nil)
}

// AddInterface makes an interface with a MAC address.
func (n *Client) AddInterface(ctx context.Context, device int64, name, mac string) error {
	// What medium it is of cannot be seen from its speed.
	in := map[string]any{"device": device, "name": name, "type": "other"}
	if !n.macObjects {
		in["mac_address"] = mac
	}
	var made Interface
	if err := n.call(ctx, http.MethodPost, "/dcim/interfaces/", in, &made); err != nil || !n.macObjects {
		return err
	}
	return n.SetMAC(ctx, made, mac)
}

// SetMAC sets the MAC address of an interface without one.
func (n *Client) SetMAC(ctx context.Context, i Interface, mac string) error {
	path := fmt.Sprintf("/dcim/interfaces/%d/", i.ID)
	if !n.macObjects {
		return n.call(ctx, http.MethodPatch, path, map[string]any{"mac_address": mac}, nil)
	}
	var id int64
	for _, m := range i.MACs {
		if hwid.SameMAC(m.MAC, mac) {
			id = m.ID // of a run that was killed between the two calls
		}
	}
	if id == 0 {
		var made Ref
		if err := n.call(ctx, http.MethodPost, "/dcim/mac-addresses/", map[string]any{"mac_address": mac,
			"assigned_object_type": "dcim.interface", "assigned_object_id": i.ID}, &made); err != nil {
			return err
		}
		id = made.ID
	}
	return n.call(ctx, http.MethodPatch, path, map[string]any{"primary_mac_address": id}, nil)
}

// fields are the custom fields that the controller owns, and what they say.
var fields = []struct{ name, label, text string }{
	{"ingot_machine", "Ingot machine", "Id of the machine in Ingot."},
	{"ingot_state", "Ingot state", "IDLE, BUSY, MAINTENANCE, NEW, ATTENTION or BLOCKED."},
	{"ingot_attention", "Ingot attention", "Why a person is needed; empty where none is."},
	{"ingot_serial", "Serial seen", "Serial number that the machine's agent has read."},
	{"ingot_image", "Image", "What was verified on the disk last."},
	{"ingot_operation", "Ingot operation", "The last work on the machine, and how far it is."},
}

// Setup makes the custom fields that are missing, and names them.
func (n *Client) Setup(ctx context.Context) (made []string, err error) {
	have, err := list[Ref](ctx, n, "/extras/custom-fields/", nil)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, f := range have {
		names[f.Name] = true
	}
	for _, f := range fields {
		if names[f.name] {
			continue
		}
		if err := n.call(ctx, http.MethodPost, "/extras/custom-fields/", map[string]any{
			n.objectTypes: []string{"dcim.device"}, "name": f.name, "label": f.label, "type": "text", "description": f.text,
		}, nil); err != nil {
			return made, err
		}
		made = append(made, f.name)
	}
	return made, nil
}
