package cli

import "testing"

func TestPowerCommands(t *testing.T) {
	golden(t, "power", fleet,
		"power on machine-1 --request-id r-1 --no-wait",
		"power off machine-1 --request-id r-2 --no-wait -o name",
		"power off",
		"__complete power off ''",
	)
}
