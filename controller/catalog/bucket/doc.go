// Package bucket keeps blobs in a bucket of S3, or of another service with its protocol. So several controllers need no
// shared file system.
//
// # Sources of truth
//
// The object's name, prefix and digest. An object comes into being with one request that either happens or does not: a
// PUT of a small file, CompleteMultipartUpload of a large one. Before it, every part has gone with the SHA-256 that the
// service checks, and the digest of what was sent was compared with the name.
//
// # Failure handling
//
// A file is a local one until it is whole, see blob.Spool; memory holds one buffer. A service that does not answer is
// IMAGE_STORE_UNAVAILABLE and may be tried again, one that refuses is IMAGE_STORE_REFUSED and asks for a person. An
// answer that ends early is an error, never the end of the blob. A crash leaves an invisible upload. Tidy ends those
// that are a day old, since another controller may be at a younger one.
//
// The protocol does not report how full a bucket is.
package bucket
