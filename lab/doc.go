// Package lab is the laboratory: computers that exist only as processes, and what is proved with them.
//
// Package image builds what they boot from, package vm runs them in QEMU, package cli makes both a command line. The
// tests of this package run the shipped agent as the only program of such a machine against a whole controller, and
// look at the machine from outside.
package lab
