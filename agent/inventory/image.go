package inventory

import (
	"encoding/json"
	"os"
)

// ImageFile is where the installer leaves what the system was made from: on the state partition, which is mounted on
// its directory in every image.
const ImageFile = "var/lib/ingot/image.json"

// Image is what a system was made from. The installer writes it before the system's first boot.
type Image struct {
	// Ref is the entry in the image catalogue.
	Ref string `json:"image_ref"`
	// Digest is of the raw bytes that were written, as "sha256:" and hex.
	Digest string `json:"digest"`
	// OperationID is the operation that wrote them.
	OperationID string `json:"operation_id"`
}

// image is the zero value for a system that was not made by an installer. A file that doesn't parse is no claim.
func (c collector) image() Image {
	text, err := os.ReadFile(c.path(ImageFile))
	if os.IsNotExist(err) {
		return Image{}
	}
	var i Image
	if err == nil {
		err = json.Unmarshal(text, &i)
	}
	if err != nil {
		c.miss("image", "%v", err)
		return Image{}
	}
	return i
}
