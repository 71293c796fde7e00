package identity

import (
	"slices"
	"testing"

	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

func TestFilesOfOneInstallerStayTogether(t *testing.T) {
	image := func(ref, kind string) dbsqlc.InstallerImagesRow {
		return dbsqlc.InstallerImagesRow{ImageRef: ref, Kind: kind, Arch: "amd64", Sha256File: ref}
	}
	old := []dbsqlc.InstallerImagesRow{
		image("installer-kernel", "installer-kernel"), image("installer-initrd", "installer-initrd"),
	}
	for name, c := range map[string]struct {
		later               []dbsqlc.InstallerImagesRow
		kernel, initrd, uki string
	}{
		"alone": {nil, "installer-kernel", "installer-initrd", ""},
		"the next one is on its way": {
			[]dbsqlc.InstallerImagesRow{image("installer-kernel-v2", "installer-kernel"),
				image("installer-uki-v2", "installer-uki")},
			"installer-kernel", "installer-initrd", "",
		},
		"the next one is whole": {
			[]dbsqlc.InstallerImagesRow{
				image("installer-uki-v2", "installer-uki"), image("installer-initrd-v2", "installer-initrd"),
				image("installer-kernel-v2", "installer-kernel"),
			},
			"installer-kernel-v2", "installer-initrd-v2", "installer-uki-v2",
		},
		"names of their own": {
			[]dbsqlc.InstallerImagesRow{image("k", "installer-kernel"), image("i", "installer-initrd")}, "k", "i", "",
		},
	} {
		got := catalogstore.NewestInstallers(slices.Concat(old, c.later), "quiet")
		if len(got) != 1 || got[0].GetKernelSha256() != c.kernel || got[0].GetInitrdSha256() != c.initrd ||
			got[0].GetUkiSha256() != c.uki {
			t.Errorf("%s: %v", name, got)
		}
	}
}
