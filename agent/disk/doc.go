// Package disk finds the block devices of the machine that it runs on.
//
// # Overview
//
// List reads sysfs. Package internal/disk has the type Device and chooses the disk that a rule means. Package disk
// writes nothing: packages block, image and erase below it do.
//
// # Sources of truth
//
// The kernel's view of the moment of the call. Who is about to write calls List again and does not keep a Device.
package disk
