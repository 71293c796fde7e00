// Command ingot-controller runs the controller; package controller/cmdline has everything in it.
package main

import (
	"os"

	"github.com/ingot-metal/ingot/controller/cmdline"
)

// version is set when a release is built.
var version string

func main() { os.Exit(cmdline.Main(os.Args[1:], version)) }
