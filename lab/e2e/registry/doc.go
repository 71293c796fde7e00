// Package registry has tests of controllers that fetch images from a real registry of OCI, Debian's docker-registry:
// with the build tag registry, make test-registry.
package registry
