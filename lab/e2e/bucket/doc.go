// Package bucket has tests of controllers that keep their images in one bucket of a real server of S3: with the build
// tag bucket, make test-bucket.
package bucket
