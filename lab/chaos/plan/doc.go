// Package plan draws from a seed what strikes a system in a run, and what its clients do.
package plan
