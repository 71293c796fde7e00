package validate

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/ingot-metal/ingot/internal/weburl"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// ImageKinds are what a file of the catalogue can be.
var ImageKinds = []string{"os", "installer-kernel", "installer-initrd", "installer-uki"}

// ImageArchs are the architectures that images are for.
var ImageArchs = []string{"amd64", "arm64"}

var (
	refForm    = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)
	digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const refRule = "1 to 63 characters of a-z, 0-9, ., _ and -"

// NewImage checks the description of an image and returns a copy with the kind filled, without fields that only the
// server can know. Format and architecture stay empty where they follow from the bytes. An upload has no URL, anything
// else must.
func NewImage(path string, im *baremetalv1.Image, upload bool) (*baremetalv1.Image, error) {
	if im == nil {
		return nil, Fault(path, "required")
	}
	out := proto.CloneOf(im)
	out.CreatedAt = nil
	out.Kind = cmp.Or(im.GetKind(), "os")
	var f faults
	if !refForm.MatchString(im.GetImageRef()) {
		f.add(path+".image_ref", refRule)
	}
	f.add(path+".kind", among(out.GetKind(), ImageKinds...))
	if out.GetArch() != "" {
		f.add(path+".arch", among(out.GetArch(), ImageArchs...))
	}
	f.add(path+".format", imageFormat(out))
	if !upload {
		f.add(path+".url", imageURL(im.GetUrl()))
	} else if im.GetUrl() != "" {
		f.add(path+".url", "an upload comes from no URL")
	}
	for field, sum := range map[string]string{
		"sha256_file": im.GetSha256File(), "sha256_raw": im.GetSha256Raw(), "sha256_source": im.GetSha256Source(),
	} {
		if sum != "" && !digestForm.MatchString(sum) {
			f.add(path+"."+field, "64 lower-case hexadecimal digits")
		}
	}
	for field, n := range map[string]int64{
		"size_bytes": im.GetSizeBytes(), "file_size_bytes": im.GetFileSizeBytes(),
		"minimum_disk_bytes": im.GetMinimumDiskBytes(),
	} {
		if n < 0 {
			f.add(path+"."+field, "not negative")
		}
	}
	out.Firmware = firmware(&f, path+".firmware", im.GetFirmware())
	return out, f.err()
}

func among(s string, allowed ...string) string {
	if slices.Contains(allowed, s) {
		return ""
	}
	return fmt.Sprintf("%q is none of %s", shown(s), strings.Join(allowed, ", "))
}

func imageFormat(im *baremetalv1.Image) string {
	switch {
	case im.GetFormat() == "":
		return ""
	case im.GetKind() != "os" && im.GetFormat() != "raw":
		return "files of an installer are kept as they are: raw"
	}
	return among(im.GetFormat(), "raw", "raw.zst", "raw.gz", "raw.xz", "qcow2")
}

const maxURL = 2048

// imageURL refuses what holds a user name or a password: the URL is stored and shown.
func imageURL(s string) string {
	u, err := weburl.Parse(s)
	switch {
	case s == "":
		return "required"
	case len(s) > maxURL || !printableASCII(s):
		return fmt.Sprintf("at most %d printable ASCII characters", maxURL)
	case errors.Is(err, weburl.ErrPort):
		return err.Error()
	case err != nil || !slices.Contains([]string{"http", "https", "oci"}, u.Scheme):
		return "must be https://…, http://… or oci://…"
	case u.User != nil:
		return "must not hold credentials"
	case u.Fragment != "":
		return "must not have a fragment"
	}
	return ""
}

// firmware returns the list sorted and without repeats.
func firmware(f *faults, path string, list []string) []string {
	for i, s := range list {
		f.add(fmt.Sprintf("%s[%d]", path, i), among(s, "bios", "uefi"))
	}
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}
