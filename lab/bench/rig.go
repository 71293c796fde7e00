package main

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/benchrig"
)

// rig is the database and the controller.
type rig struct {
	*benchrig.Rig
	o options
}

func (g *rig) machines() baremetalv1.MachineServiceClient {
	return baremetalv1.NewMachineServiceClient(g.Conn)
}
