package pid1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/internal/mediaproof"
)

// readMedia returns the content of the image that the machine was started from; nil where it was started otherwise. It
// deletes the file, because that holds a secret.
func readMedia(root string) (*mediaproof.File, error) {
	path := filepath.Join(root, mediaproof.FileName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the image holds: %w", err)
	}
	var f mediaproof.File
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parse what the image holds: %w", err)
	}
	return &f, os.Remove(path)
}

const (
	// mediaTimeout is how long the machine's interfaces may take to get a link, and the site to answer.
	mediaTimeout = 2 * time.Minute
	// siteTimeout is how long the site may take to answer on one interface.
	siteTimeout = 3 * time.Second
)

// setupMedia assigns the address to the first of the machine's interfaces through which the site answers.
func setupMedia(ctx context.Context, log *slog.Logger, etc string, b bootLine) (connection, error) {
	n := Network{Address: b.media.Address, Gateway: b.media.Gateway, DNS: b.media.DNS}
	site, err := url.Parse(b.site)
	if err != nil {
		return connection{}, fmt.Errorf("%w: %w", ErrBootLine, err)
	}
	var got connection
	var last error
	found := poll(ctx, mediaTimeout, func() bool {
		for _, link := range ofMachine(ready(""), b.media.MACs) {
			if got, last = try(ctx, link, n, site.Host, etc); last == nil {
				return true
			}
			log.Warn("the site does not answer on this interface", "interface", link.Attrs().Name, "address",
				n.Address.String(), "site", b.site, "error", last)
			pause(time.Second)
		}
		return false
	})
	if !found {
		return connection{}, errors.Join(ErrNoInterface, last)
	}
	log.Info("address out of the image", "interface", got.link.Attrs().Name, "address", n.Address.String())
	return got, nil
}

// ofMachine are the interfaces whose addresses the image names.
func ofMachine(links []netlink.Link, macs []string) []netlink.Link {
	return slices.DeleteFunc(slices.Clone(links), func(l netlink.Link) bool {
		return !slices.ContainsFunc(
			macs,
			func(m string) bool { return strings.EqualFold(m, l.Attrs().HardwareAddr.String()) },
		)
	})
}

// try takes the address away again where the site does not answer.
func try(ctx context.Context, link netlink.Link, n Network, site, etc string) (connection, error) {
	c, err := use(link, n, etc)
	if err == nil {
		err = answers(ctx, site, n.Address.Addr())
	}
	if err != nil {
		// Without the address, its routes are gone, too.
		return c, errors.Join(err, netlink.AddrDel(link, ipNet(n.Address)))
	}
	return c, nil
}

func answers(ctx context.Context, site string, from netip.Addr) error {
	d := net.Dialer{Timeout: siteTimeout, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	conn, err := d.DialContext(ctx, "tcp", site)
	if err != nil {
		return fmt.Errorf("ask the site: %w", err)
	}
	return conn.Close()
}
