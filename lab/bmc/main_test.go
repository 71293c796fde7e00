package bmc_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/network"
)

func TestMain(m *testing.M) {
	bmc.MainIfControl()
	if err := network.BecomeRoot(); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
