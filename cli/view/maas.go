package view

import (
	"strconv"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// MAASRegions is the list of MAAS regions.
func (s Style) MAASRegions(list []*pb.MAASRegion) *Table {
	t := &Table{Header: []string{"REGION_REF", "ENDPOINT", "KEY", "VERSION", "UPDATED", "RETAINS"}}
	for _, m := range list {
		key := Clean(m.GetConsumerKey())
		if key == "" {
			key = s.Warn("sealed with a lost key: set it again")
		}
		retains := "no"
		if m.GetRetainMachines() {
			retains = "yes"
		}
		t.Add(m.GetRegionRef(), Clean(m.GetEndpoint()), key, strconv.FormatInt(m.GetVersion(), 10), Time(m.GetUpdatedAt()),
			retains)
	}
	return t
}
