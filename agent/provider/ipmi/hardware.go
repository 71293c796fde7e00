package ipmi

import (
	"cmp"
	"context"
	"strings"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Hardware reads the machine's own FRU (device 0): its product area, or else its board. There are no MAC addresses in
// it, and the system's GUID is left out: controllers differ in its byte order.
func (c *Client) Hardware(ctx context.Context) (found provider.Hardware, err error) {
	err = c.call(ctx, func() error {
		fru, err := c.api.GetFRU(ctx, 0, "")
		if answeredNo(err) {
			return nil // it has none, or keeps it to administrators
		}
		if err != nil || !fru.Present() {
			return err
		}
		if p := fru.ProductInfoArea; p != nil {
			found.Vendor = fruText(p.ManufacturerTypeLength, p.Manufacturer)
			found.Model = fruText(p.NameTypeLength, p.Name)
			found.Serial = fruText(p.SerialNumberTypeLength, p.SerialNumber)
		}
		if b := fru.BoardInfoArea; b != nil {
			found.Vendor = cmp.Or(found.Vendor, fruText(b.ManufacturerTypeLength, b.Manufacturer))
			found.Model = cmp.Or(found.Model, fruText(b.ProductNameTypeLength, b.ProductName))
			found.Serial = cmp.Or(found.Serial, fruText(b.SerialNumberTypeLength, b.SerialNumber))
		}
		return nil
	})
	return found, err
}

// fruText decodes a field of the FRU; one that is not what its length says is empty.
func fruText(form types.TypeLength, raw []byte) string {
	text, err := form.Chars(raw)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(text), "\x00"))
}
