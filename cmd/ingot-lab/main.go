// Command ingot-lab runs virtual machines that the agent manages as real ones.
package main

import (
	"os"

	"github.com/ingot-metal/ingot/lab/cli"
)

func main() { os.Exit(cli.Main()) }
