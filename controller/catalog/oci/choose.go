package oci

import (
	"cmp"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ingot-metal/ingot/internal/failure"
)

// choose finds the layer that holds the file: the only one there is, or the one of this title or media type.
func choose(layers []ocispec.Descriptor, name string) (ocispec.Descriptor, error) {
	var fit []ocispec.Descriptor
	var names []string
	for _, l := range layers {
		title := l.Annotations[ocispec.AnnotationTitle]
		if l.MediaType == ocispec.MediaTypeEmptyJSON {
			continue
		}
		names = append(names, cmp.Or(title, l.MediaType))
		if name == "" || name == title || name == l.MediaType {
			fit = append(fit, l)
		}
	}
	switch {
	case len(names) == 0:
		return ocispec.Descriptor{}, unsupported("the artefact has no file")
	case len(fit) == 0:
		return ocispec.Descriptor{}, unsupported("no file of the artefact is called %q: it has %s", name, list(names))
	case len(fit) > 1:
		return ocispec.Descriptor{}, unsupported("the artefact has several files: %s; choose one with ?layer=NAME",
			list(names))
	}
	return fit[0], check(fit[0])
}

// chooseArch finds the manifest of an index: the only one there is, or the one of this architecture.
func chooseArch(manifests []ocispec.Descriptor, arch string) (ocispec.Descriptor, error) {
	fit := manifests
	if len(manifests) > 1 {
		fit = slices.DeleteFunc(slices.Clone(manifests), func(d ocispec.Descriptor) bool {
			return d.Platform == nil || d.Platform.Architecture != arch
		})
	}
	if len(fit) != 1 {
		var have []string
		for _, d := range manifests {
			if d.Platform != nil {
				have = append(have, d.Platform.Architecture)
			}
		}
		return ocispec.Descriptor{}, unsupported("the index has %d images for architecture %q: it has %s", len(fit), arch,
			list(have)).WithField("image.arch", "names none of the index, or several")
	}
	return fit[0], check(fit[0])
}

// check refuses a digest that cannot be compared here.
func check(d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil || d.Digest.Algorithm() != digest.SHA256 || d.Size <= 0 {
		return failure.Precondition("IMAGE_UNSUPPORTED", "the manifest names a file without a size or a digest by sha256")
	}
	return nil
}

// list shows the names in a manifest, which may be many.
func list(names []string) string {
	const most = 20
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "and more")
	}
	return strings.Join(names, ", ")
}
