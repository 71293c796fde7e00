// Package hardware holds the tests of tests of hardware, by agents and controllers as processes of their own.
package hardware
