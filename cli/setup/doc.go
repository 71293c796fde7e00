// Package setup has the commands that set up a controller, and that say which one to talk to and which version this
// program is.
package setup
