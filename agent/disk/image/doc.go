// Package image writes a disk image so that the disk becomes bootable only when all of it is there and right.
//
// # Overview
//
// Write streams an image over HTTP onto a disk and reads it back past every cache. It adds a small partition with the
// identity of the new system. It writes the first MiB last, which holds the partition table and the boot code. Check
// reports afterwards whether a disk holds the image of a Write.
//
// # Sources of truth
//
// The bytes that come back from the device. The first MiB is the exception: until the end it exists in memory only, and
// its part of the digest is taken from there. At the end it is written and compared byte by byte.
//
// # State model
//
//	check -> zero both ends -> discard -> write all but the first MiB -> flush -> read back, hash
//	      -> state partition -> files for the new system -> backup table -> first MiB -> flush -> read back
//
// The digest is that of the image as it was ordered. Additions to its file systems come after, and are read back by
// themselves. Up to the last three steps the first MiB and the last are zeros: nothing on the disk is found by a
// firmware or a kernel, whatever the disk held before.
//
// # Failure handling
//
// Every error is an *Error with the reason that goes into the command's result. A failure before the first MiB was
// begun leaves a disk that does not boot; one after it wipes both ends again. A connection that breaks is taken up
// again at the byte where it broke. Nothing is ever resumed on the disk: another attempt starts from the top.
package image
