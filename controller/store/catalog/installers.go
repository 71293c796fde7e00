package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// InstallerFiles returns the newest installer of each architecture; amd64 is the first.
func InstallerFiles(ctx context.Context, q *dbsqlc.Queries, cmdline string) ([]*fleetv1.InstallerFiles, error) {
	rows, err := q.InstallerImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("read installers: %w", err)
	}
	return NewestInstallers(rows, cmdline), nil
}

// NewestInstallers takes images from the oldest to the newest. Files belong together when their names do, as those of
// installer-kernel-v2 and installer-initrd-v2; an initramfs holds the modules of one kernel. An installer is as new as
// the file that completes it, so that one being uploaded is not booted before it is whole.
func NewestInstallers(rows []dbsqlc.InstallerImagesRow, cmdline string) []*fleetv1.InstallerFiles {
	type key struct{ arch, name string }
	sets := map[key]*fleetv1.InstallerFiles{}
	newest := map[string]*fleetv1.InstallerFiles{}
	for _, r := range rows {
		name, ok := strings.CutPrefix(r.ImageRef, r.Kind)
		if !ok {
			name = ""
		}
		f := sets[key{r.Arch, name}]
		if f == nil {
			f = &fleetv1.InstallerFiles{Arch: r.Arch, Cmdline: cmdline}
			sets[key{r.Arch, name}] = f
		}
		switch r.Kind {
		case "installer-kernel":
			f.KernelSha256 = r.Sha256File
		case "installer-initrd":
			f.InitrdSha256 = r.Sha256File
		case "installer-uki":
			f.UkiSha256 = r.Sha256File
		}
		if f.GetKernelSha256() != "" && f.GetInitrdSha256() != "" {
			newest[r.Arch] = f
		}
	}
	out := []*fleetv1.InstallerFiles{}
	for _, arch := range slices.Sorted(maps.Keys(newest)) {
		out = append(out, newest[arch])
	}
	return out
}
