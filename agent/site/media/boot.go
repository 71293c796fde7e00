package media

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/site/cdimage"
	"github.com/ingot-metal/ingot/internal/mediaproof"
)

// Files are the blobs of one installer build, by the SHA-256 of their bytes.
type Files struct {
	Arch                string
	Kernel, Initrd, UKI string
	Cmdline             string
}

// Boot is what one machine starts from an attached image.
type Boot struct {
	MachineID, OperationID, Token string
	// Site is the base URL of the boot server that the installer asks.
	Site string
	// Rescue starts the system that only takes inventory.
	Rescue bool
	Files  Files
	// Own is what stands in the image beside the installer.
	Own mediaproof.File
}

// Names of images. The part before the last one identifies the site and the machine, also for a BMC that shows only the
// last part of a URL.
const (
	nameStart = "ingot-"
	nameEnd   = ".iso"
	nameLen   = 32
	// Path is below which images are served.
	Path = "/ingot-media/"
)

// prefix is how the names of all images of a machine begin.
func prefix(site, machineID string) string {
	sum := sha256.Sum256([]byte(site + "\x00" + machineID))
	return nameStart + hex.EncodeToString(sum[:6]) + "-"
}

// name is that of the machine's image in this assignment. It cannot be made without the secret.
func (b Boot) name(site string) string {
	mac := hmac.New(sha256.New, b.Own.Secret)
	mac.Write([]byte("ingot media name\x00" + b.Token))
	return prefix(site, b.MachineID) + hex.EncodeToString(mac.Sum(nil))[:nameLen] + nameEnd
}

// Ours reports whether an image, by its URL or its name, is one of the machine's of this site.
func Ours(site, machineID, image string) bool {
	base := path.Base(image)
	return strings.HasPrefix(base, prefix(site, machineID)) && strings.HasSuffix(base, nameEnd)
}

// params are the kernel's parameters. They hold no secret: a console shows them.
func (b Boot) params() string {
	out := []string{"ingot.role=installer", "ingot.site=" + b.Site, "ingot.token=" + b.Token}
	if b.Rescue {
		out = append(out, "ingot.mode=rescue")
	}
	return strings.Join(slices.Concat(out, strings.Fields(b.Files.Cmdline)), " ")
}

// archive is unpacked over the installer's initramfs.
func (b Boot) archive() ([]byte, error) {
	data, err := json.Marshal(b.Own)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", mediaproof.FileName, err)
	}
	return cdimage.Archive(mediaproof.FileName, data), nil
}
