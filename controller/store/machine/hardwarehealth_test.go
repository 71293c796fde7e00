package machine

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// A BMC's log may hold any time and any number. Neither may stop the report of its site.
func TestNoTimeOfABMCStopsTheReportOfItsSite(t *testing.T) {
	t.Parallel()
	now, nan := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), math.NaN()
	year0 := timestamppb.New(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, read := range []*timestamppb.Timestamp{nil, year0, timestamppb.New(now.Add(time.Hour))} {
		h, err := healthIn(&fleetv1.HardwareReading{MachineId: "m-1", ReadAt: read, IdentifyLight: "\x00",
			Sensors: []*fleetv1.HardwareSensor{{Name: "T", Value: &nan}},
			Events:  []*fleetv1.HardwareEvent{{Message: "started", At: year0}}}, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = protojson.Marshal(h); err != nil || !h.GetReadAt().AsTime().Equal(now) || h.GetEvents()[0].At != nil ||
			h.GetIdentifyLight() != "" {
			t.Errorf("%v, %v", h, err)
		}
	}
}
