package site

import (
	"slices"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// addMedia marks the assignments whose machines boot from virtual media. Their secrets are not in the database.
func addMedia(d *fleetv1.SiteDocument, assigned []dbsqlc.AssignmentsOfSiteRow) error {
	for _, a := range assigned {
		path, err := convert.InstallerPath(a.Installs)
		if err != nil {
			return err
		}
		if a.Mode != operation.BootInstaller || path != operation.PathMedia {
			continue
		}
		i := slices.IndexFunc(d.Assignments, func(b *fleetv1.BootAssignment) bool { return b.GetMachineId() == a.MachineID })
		d.Assignments[i].Media = &fleetv1.MediaBoot{Address: a.InstallAddress}
	}
	return nil
}
