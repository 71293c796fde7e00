// Package cache keeps blobs at the site: files that are named by the SHA-256 of their bytes. Each is fetched from the
// controller once, however many machines ask for it at the same time.
//
// # Sources of truth
//
// The directory. A file named by a digest was complete, and had that digest, when it was renamed to it. A file with
// ".part" behind the digest is the beginning of one. There is no other index: the modification time is the time of the
// last use, and the size is the file's.
//
// # The life of a blob
//
//	absent ── asked for ──▶ filling ── digest is right ──▶ ready ── room is needed ──▶ absent
//	             ▲              │
//	             └─ file was here at the start: its digest is computed again before the first read
//
// A blob can be read while it is filling. Its last bytes are held back until the digest of all of them is verified. So
// no reader ever reaches the end of another content.
//
// # Failure handling
//
//   - The source is lost in the middle: the fill goes on from where it was, for as long as the blob is wanted.
//   - The process is killed: the part is hashed again at the next start and continued.
//   - The digest is wrong: every reader gets ErrCorrupt, for Distrust from then on, and the file is removed. The next
//     reader after that starts anew.
//   - No room: unwanted blobs go first, those used longest ago before others; when that isn't enough, ErrFull.
package cache
