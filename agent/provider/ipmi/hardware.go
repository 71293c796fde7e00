package ipmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Hardware reads the machine's own FRU (device 0): its product area, or else its board. There are no MAC addresses in
// it, and the system's GUID is left out: controllers differ in its byte order. An area that cannot be read costs no
// other: found has the rest beside the error.
func (c *Client) Hardware(ctx context.Context) (found provider.Hardware, err error) {
	err = c.call(ctx, func() error {
		size, err := c.api.GetFRUInventoryAreaInfo(ctx, 0)
		if answeredNo(err) {
			return nil // it has none, or keeps it to administrators
		}
		if err != nil {
			return err
		}
		head, err := c.api.ReadFRUData(ctx, 0, 0, types.FRUCommonHeaderSize)
		if answeredNo(err) {
			return nil
		}
		var header types.FRUCommonHeader
		if err == nil && (header.Unpack(head.Data) != nil || header.FormatVersion != types.FRUFormatVersion) {
			return &provider.Incomplete{Missing: []string{"FRU: its header makes no sense"}}
		}
		if err != nil {
			return err
		}
		var missing []string
		area := func(name string, at uint8, read func(offset uint16) error) error {
			offset := uint16(at) * 8
			if offset == 0 || offset >= size.AreaSizeBytes {
				return nil
			}
			err := whole(func() error { return read(offset) })
			if err != nil && ctx.Err() == nil && (answeredNo(err) || errors.Is(err, errRecord)) {
				missing, err = append(missing, name+": "+whyNot(err)), nil
			}
			return err
		}
		err = area("FRU product area", header.ProductOffset8B, func(offset uint16) error {
			p, err := c.api.GetFRUAreaProduct(ctx, 0, offset)
			if err == nil {
				found.Vendor = fruText(p.ManufacturerTypeLength, p.Manufacturer)
				found.Model = fruText(p.NameTypeLength, p.Name)
				found.Serial = fruText(p.SerialNumberTypeLength, p.SerialNumber)
			}
			return err
		})
		if err != nil {
			return err
		}
		err = area("FRU board area", header.BoardOffset8B, func(offset uint16) error {
			b, err := c.api.GetFRUAreaBoard(ctx, 0, offset)
			if err == nil {
				found.Vendor = cmp.Or(found.Vendor, fruText(b.ManufacturerTypeLength, b.Manufacturer))
				found.Model = cmp.Or(found.Model, fruText(b.ProductNameTypeLength, b.ProductName))
				found.Serial = cmp.Or(found.Serial, fruText(b.SerialNumberTypeLength, b.SerialNumber))
			}
			return err
		})
		if err == nil && len(missing) > 0 {
			err = &provider.Incomplete{Missing: missing}
		}
		return err
	})
	return found, err
}

// whole runs a reader of firmware's bytes. Bytes that it cannot take are errRecord; a refusal or a silence stays one.
func whole(read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errRecord, r)
		}
	}()
	err = read()
	var network net.Error
	if err != nil && !answeredNo(err) && !errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return err
}

// fruText decodes a field of the FRU; it returns "" for one that does not match its type and length.
func fruText(form types.TypeLength, raw []byte) string {
	text, err := form.Chars(raw)
	if err != nil {
		return ""
	}
	return latin1(text)
}

// latin1 decodes a text of ASCII and Latin 1 (43.15), without surrounding space. One in UTF-8 stays.
func latin1(raw []byte) string {
	text := string(raw)
	if !utf8.Valid(raw) {
		var b strings.Builder
		for _, c := range raw {
			b.WriteRune(rune(c))
		}
		text = b.String()
	}
	return strings.TrimSpace(strings.Trim(text, "\x00"))
}

// sensorName decodes the name of a sensor. Most firmware writes plain characters whatever type it declares, which is
// what ipmitool prints; others are of that type.
func sensorName(form types.TypeLength, raw []byte) string {
	odd := slices.ContainsFunc(raw, func(c byte) bool { return c != 0 && (c < ' ' || c > '~') })
	if chars, err := form.Chars(raw); odd && err == nil {
		raw = chars
	}
	return latin1(raw)
}
