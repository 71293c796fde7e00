package operation_test

import (
	"os"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func TestZZWalk(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	r := storetest.NewMetalRig(t)
	r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot")
	switch os.Getenv("WALK") {
	case "reboot":
		storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "w", Type: fleet.Reboot, Actor: "x"})
	case "reimage":
		storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: storetest.Inputs("tiny"), Actor: "x"})
	}
}
