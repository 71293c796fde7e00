package main

import (
	_ "embed" // for the file below
	"fmt"
	"strings"
)

const (
	// variable names the mutant that is on.
	variable = "INGOT_MUTANT"
	// traceVariable names the file that collects the mutants that were reached.
	traceVariable = "INGOT_MUTANTS_REACHED"
)

//go:embed switches.tmpl
var switchesFile string

// switches is the file that each mutated package is given.
func switches(name string, highest int) string {
	return strings.NewReplacer("PACKAGE", name, "HIGHEST", fmt.Sprint(highest), "VARIABLE", variable, "TRACE",
		traceVariable).Replace(switchesFile)
}
