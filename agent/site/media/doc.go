// Package media serves the images that BMCs attach to machines, which start the installer from there, and sees to it
// that none stays attached.
//
// An image is made of the installer's files and of one machine's own data while it is sent: its boot token, its
// address, and the secret of its assignment, which proves which machine was started from it. Nothing of it is stored.
//
// Server sends an image to every client that knows its name, which is as secret as its content. It does so until the
// installer is certified, or the assignment is over.
//
// Keeper records an image durably before a BMC receives the order to attach it. It ejects the image when the installer
// is certified, and else when the assignment ends, whatever happened in between. It goes on until the BMC shows the
// drive empty. After a start it searches every BMC once for an image of ours without a record. Foreign images are never
// ejected.
package media
