// Package setup has the commands that say where the controller is, and which version this program is.
package setup
