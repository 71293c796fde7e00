// Package netbox keeps NetBox and a controller in step, each field by its owner.
//
// # Sources of truth
//
// NetBox owns what people plan: name, site, rack, position, role, asset tag and device type. A device that is planned
// becomes a machine. The controller owns observations: serial number, interfaces, state, image and work; they are
// written to custom fields and to interfaces that NetBox lacks.
//
// # Overview
//
// Plans are pure: Ingest returns the changes of a device in the controller, Report those of a machine in NetBox. Sync
// reads both sides, and prints or applies the plans.
//
// # Failure handling
//
// Nothing is kept between runs. A label of the machine holds a digest of what was taken over last, and is written by
// the same call. The digest distinguishes a value that was changed in the controller from an old one. What contradicts
// is a conflict: it is named and not overwritten, and nothing is ever deleted on either side. A run that was killed is
// made good by the next.
package netbox
