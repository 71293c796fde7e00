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

// switches returns the file that is added to each mutated package. Its mutants have numbers from lowest to highest.
func switches(name string, lowest, highest int) string {
	return strings.NewReplacer("PACKAGE", name, "LOWEST", fmt.Sprint(lowest), "HIGHEST", fmt.Sprint(highest),
		"VARIABLE", variable, "TRACE", traceVariable).Replace(switchesFile)
}
