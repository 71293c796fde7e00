// Package backup writes a controller into one file, and makes a controller of such a file on another host.
//
// # The file
//
// A tar archive in one zstd frame. Its first member is manifest.json; the others follow in the manifest's order:
//
//	controller.yaml, tokens, secrets.key     as they were
//	ca/…                                     the directory of the CA
//	tls-cert.pem, tls-key.pem, tpm-roots.pem where the configuration names such files
//	bucket-credentials, bucket-ca.pem        the same
//	database.dump                            pg_dump -Fc, one snapshot
//	images/SHA256                            the image store; files of at most 1 MiB (scripts) always, others on demand
//
// It holds every secret of the controller and is not encrypted.
//
// # Sources of truth
//
// The manifest: name, size and SHA-256 of each member. Open reads the whole file and refuses whatever differs from it,
// before anything is written. A member's name decides alone where it goes, and only names of the list above are taken:
// no path, link or device of the archive is ever followed. The manifest itself is proven by the frame's checksum, which
// finds damage and no forger: a writer of the file controls the restored system.
//
// # Failure handling
//
// Create reads the database first and images after that, so that no image is missing which the dump knows, unless it
// was removed in between. Restore refuses a host that has anything already. It writes keys and images, then the
// database in one transaction. The schema's migrations, the freeze and the new incarnation of a restored database
// follow, and the tokens are last: without them no controller starts. What it has written to directories is removed
// when it fails. After kill -9 the next Restore names the objects in the way.
package backup
