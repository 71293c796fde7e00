package redfish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/ingot-metal/ingot/agent/provider"
)

// medium is a VirtualMedia of the DMTF's schema (DSP2046).
type medium struct {
	MediaTypes   lenient[words[string]]
	Image        lenient[string]
	ImageName    lenient[string]
	Inserted     *lenient[bool]
	ConnectedVia lenient[string]
	Actions      lenient[mediaActions]
	Oem          lenient[struct {
		Hp, Hpe lenient[struct{ Actions lenient[mediaActions] }]
	}]

	at   path
	etag string
}

// mediaActions are the standard's, and iLO's from before there was one.
type mediaActions struct {
	Insert    lenient[action] `json:"#VirtualMedia.InsertMedia"`
	Eject     lenient[action] `json:"#VirtualMedia.EjectMedia"`
	HpInsert  lenient[action] `json:"#HpiLOVirtualMedia.InsertVirtualMedia"`
	HpEject   lenient[action] `json:"#HpiLOVirtualMedia.EjectVirtualMedia"`
	HpeInsert lenient[action] `json:"#HpeiLOVirtualMedia.InsertVirtualMedia"`
	HpeEject  lenient[action] `json:"#HpeiLOVirtualMedia.EjectVirtualMedia"`
}

type action struct {
	Target lenient[string] `json:"target"`
}

// insertAt and ejectAt are where the actions are asked for; empty where there are none, and the properties are written.
func (m medium) insertAt() path {
	hp, hpe := m.Oem.V.Hp.V.Actions.V, m.Oem.V.Hpe.V.Actions.V
	return cleanPath(cmp.Or(m.Actions.V.Insert.V.Target.V, hpe.HpeInsert.V.Target.V, hp.HpInsert.V.Target.V))
}

func (m medium) ejectAt() path {
	hp, hpe := m.Oem.V.Hp.V.Actions.V, m.Oem.V.Hpe.V.Actions.V
	return cleanPath(cmp.Or(m.Actions.V.Eject.V.Target.V, hpe.HpeEject.V.Target.V, hp.HpEject.V.Target.V))
}

// cd reports whether a machine can boot from it as from a CD.
func (m medium) cd() bool {
	_, cd := m.MediaTypes.V.find("CD")
	_, dvd := m.MediaTypes.V.find("DVD")
	return cd || dvd
}

// public returns the drive and its image.
func (m medium) public() provider.Medium {
	image := cmp.Or(m.Image.V, m.ImageName.V)
	inserted := image != ""
	if m.Inserted != nil {
		inserted = m.Inserted.V
	}
	// Some show the last image, and that it is inserted, when it is not connected any more
	// (github.com/ansible-collections/community.general, issue 6969).
	if same(m.ConnectedVia.V, "NotConnected") || image == "" && m.ConnectedVia.V == "" {
		image, inserted = "", false
	}
	return provider.Medium{Slot: string(m.at), Image: image, Inserted: inserted}
}

// maxMedia bounds how many drives are read.
const maxMedia = 16

// Media reads the drives from which the machine can boot a CD: those of the system, and of its managers.
func (c *Client) Media(ctx context.Context) (out []provider.Medium, err error) {
	err = c.call(ctx, func(context.Context) error {
		out = nil
		found, err := c.media()
		for _, m := range found {
			out = append(out, m.public())
		}
		return err
	})
	return out, err
}

func (c *Client) media() ([]medium, error) {
	s, _, err := c.readSystem()
	if err != nil {
		return nil, err
	}
	sv := &survey{c: c}
	collections := []path{s.VirtualMedia}
	for _, manager := range sv.managers(s) {
		var doc struct{ VirtualMedia path }
		if _, err := sv.object(manager, &doc); err != nil {
			return nil, err
		}
		collections = append(collections, doc.VirtualMedia)
	}
	var out []medium
	for _, p := range once(collections, len(collections)) {
		err := sv.each(p, maxMedia, func(at path, b []byte, etag string) error {
			m, err := parseMedium(at, b, etag)
			if err == nil && m.cd() {
				out = append(out, m)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(out) > 0 {
			return out, nil // a manager shows the drives of its system once more (iDRAC9 from 5.x on)
		}
	}
	if err := sv.incomplete(); err != nil {
		return nil, fmt.Errorf("%w: virtual media: %w", provider.ErrRefused, err)
	}
	return nil, unsupported("the BMC has no virtual media that a machine can boot from as from a CD")
}

func parseMedium(at path, b []byte, etag string) (m medium, err error) {
	if err := parseObject(b, &m); err != nil {
		return medium{}, err
	}
	m.at, m.etag = at, etag
	return m, nil
}

func (c *Client) medium(at path) (m medium, err error) {
	b, etag, err := c.get(at)
	if err != nil {
		return m, err
	}
	return parseMedium(at, b, etag)
}

// InsertMedia has the image at a URL attached, and returns when the service has accepted. Errors don't repeat the URL.
func (c *Client) InsertMedia(ctx context.Context, slot, image string) error {
	return c.call(ctx, func(context.Context) error {
		m, err := c.medium(path(slot))
		if err != nil {
			return err
		}
		return withoutURL(classify(c.rt.ctx, c.insert(m, image)), image)
	})
}

// insert sends the least that the standard asks for, and where that is refused with 400, what some service asks for
// beside it. Those that have no action want the properties written (both by github.com/openstack/sushy,
// sushy/resources/manager/virtual_media.py, and github.com/ansible-collections/community.general, redfish_utils.py).
func (c *Client) insert(m medium, image string) error {
	scheme := strings.ToUpper(before(image, ":"))
	at, forms := m.insertAt(), []map[string]any{
		{"Image": image},
		{"Image": image, "TransferProtocolType": scheme},
		{"Image": image, "TransferProtocolType": scheme, "TransferMethod": "Stream"},
		{"Image": image, "TransferProtocolType": scheme, "TransferMethod": "Stream", "UserName": "", "Password": ""},
	}
	if at == "" {
		forms = []map[string]any{{"Image": image, "Inserted": true, "WriteProtected": true}, {"Image": image}}
	}
	return c.eachForm(forms, func(form map[string]any) error {
		if at == "" {
			return c.patch(m.at, m.etag, form)
		}
		return finish(c.api.Post(string(at), form))
	})
}

// eachForm sends one form after the other until one is not refused with 400.
func (c *Client) eachForm(forms []map[string]any, send func(map[string]any) error) (err error) {
	for _, form := range forms {
		if err = send(form); err == nil || statusOf(classify(c.rt.ctx, err)) != http.StatusBadRequest {
			return err
		}
	}
	return err
}

func before(s, sep string) string {
	head, _, _ := strings.Cut(s, sep)
	return head
}

// EjectMedia empties a drive, and returns when the service has accepted.
func (c *Client) EjectMedia(ctx context.Context, slot string) error {
	return c.call(ctx, func(context.Context) error {
		m, err := c.medium(path(slot))
		if err != nil {
			return err
		}
		if at := m.ejectAt(); at != "" {
			return finish(c.api.Post(string(at), map[string]any{}))
		}
		return c.eachForm([]map[string]any{{"Image": nil, "Inserted": false}, {"Image": nil}},
			func(form map[string]any) error { return c.patch(m.at, m.etag, form) })
	})
}

// withoutURL removes the address of an image from a service's text: the address suffices to read the image.
func withoutURL(err error, image string) error {
	var r *refused
	if !errors.As(err, &r) {
		return err
	}
	clean := *r
	clean.detail = strings.ReplaceAll(clean.detail, image, "the image")
	if u, err := url.Parse(image); err == nil {
		clean.detail = strings.ReplaceAll(clean.detail, u.Path, "the image")
	}
	return &clean
}
