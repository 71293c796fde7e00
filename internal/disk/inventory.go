package disk

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// inventory is what of an agent's inventory document matters here; see package agent/inventory.
type inventory struct {
	Simulated bool `json:"simulated"`
	CPU       struct {
		Architecture string `json:"architecture"`
	} `json:"cpu"`
	OS struct {
		Firmware string `json:"firmware_is"`
	} `json:"os"`
	Disks []struct {
		Name      string `json:"name"`
		Model     string `json:"model"`
		Serial    string `json:"serial"`
		WWN       string `json:"wwn"`
		SizeBytes uint64 `json:"size_bytes"`
		Removable bool   `json:"removable"`
	} `json:"disks"`
	Missing []string `json:"missing"`
}

// MachineOf reads the facts of a machine in its agent's inventory document. A document of a simulated machine, and an
// empty one, have none.
func MachineOf(document []byte) (Machine, error) {
	var doc inventory
	if len(document) == 0 {
		return Machine{}, nil
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return Machine{}, fmt.Errorf("read inventory: %w", err)
	}
	if doc.Simulated {
		return Machine{}, nil
	}
	m := Machine{Arch: doc.CPU.Architecture, Firmware: doc.OS.Firmware}
	m.DisksKnown = doc.Disks != nil &&
		!slices.ContainsFunc(doc.Missing, func(s string) bool { return strings.HasPrefix(s, "disks:") })
	for _, d := range doc.Disks {
		m.Disks = append(m.Disks, Device{
			Name: d.Name, Path: "/dev/" + d.Name, Model: d.Model, Serial: d.Serial, WWN: d.WWN,
			Size: int64(min(d.SizeBytes, math.MaxInt64)), Removable: d.Removable,
		})
	}
	return m, nil
}
