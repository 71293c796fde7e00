// Package provision holds the test that takes many machines into service by the command line alone.
package provision
