// Package disk finds the block devices of a machine and chooses the one that a rule means.
//
// # Overview
//
// List reads sysfs; Choose picks. A disk is never chosen by the order of discovery, because that changes with
// firmware, cabling and luck. Package disk writes nothing: packages block, image and erase below it do.
//
// # What is authoritative
//
// The kernel's view of the moment of the call. Who is about to write calls List again and does not keep a Device.
//
// # Failure handling
//
// A rule that fits no disk, or more than one, is a *NoUniqueMatch that lists every disk and why it was passed over.
// A disk that is protected, mounted or in use, read-only or removable is never chosen, whatever the rule says.
package disk
