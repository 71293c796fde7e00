package firstboot

import (
	"fmt"

	"github.com/coreos/go-systemd/v22/unit"
)

// Mount is a data disk of the new system.
type Mount struct {
	Path string `json:"path"`
	// Disk names the disk, PartID is the PARTUUID of its file system.
	Disk   string `json:"disk"`
	PartID string `json:"partuuid"`
	// Made reports whether the file system was made by this installation, rather than found.
	Made bool `json:"made"`
}

// mountUnits are those by which systemd mounts data disks. A disk that is missing keeps the system from nothing but
// what needs it.
func mountUnits(list []Mount) []File {
	var out []File
	for _, m := range list {
		name := unit.UnitNamePathEscape(m.Path) + ".mount"
		out = append(out, text(unitDir+name, 0o644, fmt.Sprintf(`# Written at the installation.
[Unit]
Description=Data disk %s

[Mount]
What=/dev/disk/by-partuuid/%s
Where=%s
Type=ext4
Options=defaults,nofail

[Install]
WantedBy=local-fs.target
`, m.Disk, m.PartID, m.Path)),
			File{Path: unitDir + "local-fs.target.wants/" + name, Link: "/" + unitDir + name})
	}
	return out
}
