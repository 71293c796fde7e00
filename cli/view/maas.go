package view

import (
	"strconv"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// MAASRegions are the columns of MAAS regions.
func (s Style) MAASRegions(m *pb.MAASRegion) (cells, wide []Cell) {
	key := Clean(m.GetConsumerKey())
	if key == "" {
		key = s.Warn("sealed with a lost key: set it again")
	}
	retains := "no"
	if m.GetRetainMachines() {
		retains = "yes"
	}
	return []Cell{
		{"REGION_REF", m.GetRegionRef()}, {"ENDPOINT", Clean(m.GetEndpoint())}, {"KEY", key},
		{"VERSION", strconv.FormatInt(m.GetVersion(), 10)}, {"UPDATED", Time(m.GetUpdatedAt())}, {"RETAINS", retains},
	}, nil
}
