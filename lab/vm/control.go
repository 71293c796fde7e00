package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// SystemReset presses the reset button.
func (m *Monitor) SystemReset(ctx context.Context) error {
	_, err := m.execute(ctx, "system_reset", nil)
	return err
}

// EndOnReset makes the next reset the machine's last act: it switches off instead of starting again, as one does
// whose power supply fails at the wrong moment. A machine that is started anew starts again after a reset.
func (m *Monitor) EndOnReset(ctx context.Context) error {
	_, err := m.execute(ctx, "set-action", map[string]string{"reboot": "shutdown"})
	return err
}

// Powerdown presses the power button: the guest is asked to switch itself off.
func (m *Monitor) Powerdown(ctx context.Context) error {
	_, err := m.execute(ctx, "system_powerdown", nil)
	return err
}

// Quit pulls the plug.
func (m *Monitor) Quit(ctx context.Context) error {
	_, err := m.execute(ctx, "quit", nil)
	if errors.Is(err, ErrClosed) {
		return nil // gone before it could answer
	}
	return err
}

// QueryStatus is the machine's run state, such as running or shutdown.
func (m *Monitor) QueryStatus(ctx context.Context) (string, error) {
	data, err := m.execute(ctx, "query-status", nil)
	if err != nil {
		return "", err
	}
	var status struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(data, &status); err != nil {
		return "", fmt.Errorf("parse QMP status: %w", err)
	}
	return status.Status, nil
}

// SetNetworkFirst sets whether a machine on a tap tries the network before its disks, from the next reset on: only then
// does QEMU tell the firmware.
func (m *Monitor) SetNetworkFirst(ctx context.Context, first bool) error {
	_, err := m.execute(ctx, "qom-set", map[string]any{
		"path": "/machine/peripheral/" + cardID, "property": "bootindex", "value": cardIndex(first),
	})
	return err
}

// SetWriteLimit makes a disk slow, by its place in the order of the disks, in bytes a second; 0 means as fast as it
// goes.
func (m *Monitor) SetWriteLimit(ctx context.Context, disk int, limit int64) error {
	_, err := m.execute(ctx, "block_set_io_throttle", map[string]any{
		"device": diskID(disk), "bps": 0, "bps_rd": 0, "bps_wr": limit, "iops": 0, "iops_rd": 0, "iops_wr": 0,
	})
	return err
}

// SetCDFirst sets whether the CD drive is tried before everything else, from the next reset on.
func (m *Monitor) SetCDFirst(ctx context.Context, first bool) error {
	_, err := m.execute(ctx, "qom-set", map[string]any{
		"path": "/machine/peripheral/" + cdID, "property": "bootindex", "value": cdIndex(first),
	})
	return err
}

// EjectCD opens the CD drive, whether the guest has locked it or not, and takes the image out.
func (m *Monitor) EjectCD(ctx context.Context) error {
	_, err := m.execute(ctx, "eject", map[string]any{"id": cdID, "force": true})
	return err
}
