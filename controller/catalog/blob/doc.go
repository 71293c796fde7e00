// Package blob keeps files in one directory, each under the SHA-256 of its bytes: images, and what installers boot.
//
// # What is authoritative
//
// The name. A file under a digest is whole and on disk: it was written elsewhere, synced and renamed. Which blobs are
// wanted is for the catalogue in the database to say.
//
// # Failure handling
//
// A crash leaves at most a file in incoming/, which its writer has locked (flock(2)); Open removes those that nobody
// holds, so several processes may share the directory. A full disk is IMAGE_STORE_FULL, and leaves nothing behind.
package blob
