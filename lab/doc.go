// Package lab is the laboratory: computers that exist only as processes, and the tests with them.
//
// Package image builds what they boot from, package vm runs them in QEMU, package cli makes both a command line. The
// tests of this package run the shipped agent as the only program of such a machine, against a whole controller. They
// observe the machine from outside.
package lab
