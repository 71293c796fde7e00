// Package blob keeps files, each under the SHA-256 of its bytes: images, scripts, and what installers boot. Store is
// what the catalogues work with; Dir is the one that is a directory.
//
// # Sources of truth
//
// The name. A file under a digest is whole: it was written elsewhere and shown at once. Which blobs are wanted is for
// the catalogue in the database to say.
//
// # Failure handling
//
// Every file comes in through a Spool, a directory of the controller's own. A crash leaves at most a file there, which
// its writer has locked (flock(2)). Opening removes files without a lock, so several processes may share it. A full
// disk is IMAGE_STORE_FULL, and leaves nothing behind.
package blob
