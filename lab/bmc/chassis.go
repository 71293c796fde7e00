package bmc

import (
	"cmp"
	"context"
	"io"
)

// Power is what a chassis' supply does.
type Power string

// The states of a supply. There is nothing in between here: a machine that is shutting down is on.
const (
	On  Power = "on"
	Off Power = "off"
)

// Switch is what can be done to the power. A restart is ForceOff followed by PowerOn.
type Switch string

// The switches. Each leaves a chassis alone that is already so.
const (
	PowerOn Switch = "on"
	// ForceOff cuts the power; when it returns the chassis is off.
	ForceOff Switch = "off"
	// SoftOff presses the power button (ACPI): the system may take its time, or ignore it.
	SoftOff Switch = "softoff"
)

// Boot is a device to boot from.
type Boot string

// Devices. BootNone is the machine's own order.
const (
	BootNone  Boot = ""
	BootPXE   Boot = "pxe"
	BootHTTP  Boot = "http" // UEFI HTTP boot
	BootDisk  Boot = "disk"
	BootMedia Boot = "cdrom" // virtual media
)

// Chassis is a machine as its BMC sees it. Methods may be called from several goroutines.
type Chassis interface {
	PowerState(ctx context.Context) (Power, error)
	SetPower(ctx context.Context, s Switch) error
	// BootOnce is the device that the next power-on or reset will boot from; that consumes it.
	BootOnce(ctx context.Context) (Boot, error)
	// SetBootOnce chooses it, whether the machine is on or off. BootNone takes the choice back.
	SetBootOnce(ctx context.Context, b Boot) error
	// Serial attaches to the first serial port. Output without an attached session is not kept. It works while the machine
	// is off, and stays attached over power cycles.
	Serial(ctx context.Context) (io.ReadWriteCloser, error)
	// About returns the constant properties.
	About() About
}

// Drive is a chassis with a CD drive for virtual media.
type Drive interface {
	// Insert puts the image in that file into the drive, and Eject takes it out.
	Insert(ctx context.Context, image string) error
	Eject(ctx context.Context) error
}

// About has a chassis' own names.
type About struct {
	Name   string
	UUID   string // RFC 4122, lower case
	Serial string
	// Vendor and Model are this project's where they are empty.
	Vendor, Model string
	MACs          []string // lower case with colons, in the order of the slots
	UEFI          bool
}

func (a About) vendor() string { return cmp.Or(a.Vendor, "Ingot") }

func (a About) model() string { return cmp.Or(a.Model, "Laboratory machine") }
