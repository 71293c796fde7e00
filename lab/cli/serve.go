package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

// runningFile is in the lab's directory from its beginning to its end.
const runningFile = "running"

// mixed alternates.
const mixed = "mixed"

const firmwareHelp = "bios, uefi or mixed, or a list of which each machine takes the next: bios,uefi,uefi+tpm"

// upOptions are those of up, which hands them on to serve.
type upOptions struct {
	dir, firmware, bmc, frontpage, cache, bin, name string

	machines int
	memory   int
	wornDisk bool
	tpm      bool
	bare     bool
	join     metal.Controller
}

func (o *upOptions) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.firmware, "firmware", mixed, firmwareHelp)
	f.StringVar(&o.bmc, "bmc", mixed, "how the controller is told to speak to BMCs: redfish, ipmi or mixed")
	f.StringVar(&o.frontpage, "frontpage", "", "host:port on loopback for clients (default: a free port)")
	f.StringVar(&o.cache, "cache", "", "directory of downloaded kernels (default $"+debian.CacheEnv+" or .cache/lab)")
	f.StringVar(&o.bin, "bin", "",
		"directory of ingot-controller, ingot-agent and ingot-image (default: that of this program)")
	f.StringVar(&o.name, "name", "metal", "machines are called NAME-1 and so on")
	f.BoolVar(&o.tpm, "tpm", false, "give each machine a TPM 2.0 of its own (package swtpm)")
	f.BoolVar(&o.bare, "bare", false, "machines, BMCs and their switch alone, without controller and site agent")
	f.IntVar(&o.memory, "memory", 0, "memory of a machine in MiB (default 512)")
	f.IntVar(&o.machines, "machines", 2, "how many machines; one takes half a GiB of memory while it is on")
	f.BoolVar(&o.wornDisk, "worn-disk", false, "give each machine a second disk, NAME-worn, that refuses to be written")
	f.StringVar(&o.join.Frontpage, "server", "", "host:port of a controller that runs already; none is started then")
	f.StringVar(&o.join.CAFile, "ca-file", "", "its CA")
	f.StringVar(&o.join.TokenFile, "token-file", "", "an administrator's token for it")
	f.StringVar(&o.join.Fleet, "fleet", "", "its fleet listener; it must advertise "+metal.FleetAddress+
		" and be certified for that")
	f.StringVar(&o.join.Enrolment, "enrolment", "", "its enrolment listener, which must advertise "+metal.EnrolmentAddress)
	cmd.MarkFlagsRequiredTogether("server", "ca-file", "token-file", "fleet", "enrolment")
	bindDir(cmd, &o.dir)
}

// wornSector is the sector of 512 bytes of a worn disk that cannot be written. It lies in the EFI system partition,
// which the tiny image fills.
const wornSector = 8192

func (o *upOptions) args() []string {
	args := []string{
		"--dir", o.dir, "--firmware", o.firmware, "--bmc", o.bmc, "--frontpage", o.frontpage, "--cache", o.cache,
		"--bin", o.bin, "--name", o.name, "--machines", strconv.Itoa(o.machines), "--tpm=" + strconv.FormatBool(o.tpm),
	}
	args = append(args, "--memory", strconv.Itoa(o.memory), "--bare="+strconv.FormatBool(o.bare))
	if o.wornDisk {
		args = append(args, "--worn-disk")
	}
	if o.join.Frontpage == "" {
		return args
	}
	return append(args, "--server", o.join.Frontpage, "--ca-file", o.join.CAFile, "--token-file", o.join.TokenFile,
		"--fleet", o.join.Fleet, "--enrolment", o.join.Enrolment)
}

// withTPM stands behind the firmware of a machine that has a TPM.
const withTPM = "+tpm"

// mix returns firmware, TPM and protocol of the machine with the index: four in a row have all combinations.
func (o *upOptions) mix(i int) (fw vm.Firmware, tpm bool, protocol metal.Protocol, err error) {
	list := strings.Split(o.firmware, ",")
	if o.firmware == mixed {
		list = []string{string(vm.BIOS), string(vm.UEFI)}
	}
	name, tpm := strings.CutSuffix(list[i%len(list)], withTPM)
	fw, protocol, tpm = vm.Firmware(name), metal.Protocol(o.bmc), tpm || o.tpm
	if o.bmc == mixed {
		protocol = []metal.Protocol{metal.Redfish, metal.IPMI, metal.IPMI, metal.Redfish}[i%4]
	}
	switch {
	case fw != vm.BIOS && fw != vm.UEFI:
		return "", false, "", fmt.Errorf("--firmware %q is not %s", o.firmware, firmwareHelp)
	case protocol != metal.Redfish && protocol != metal.IPMI:
		return "", false, "", fmt.Errorf("--bmc %q is not redfish, ipmi or mixed", o.bmc)
	}
	return fw, tpm, protocol, vm.Available(fw)
}

func labServe() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "serve", Short: "Be the lab in the foreground", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := os.NewFile(3, "progress")
			defer progress.Close() // the reader may be gone
			err := o.serve(cmd.Context(), progress)
			if err != nil {
				fmt.Fprintln(progress, err)
			}
			return err
		},
	}
	o.bind(cmd)
	return cmd
}

func (o *upOptions) serve(ctx context.Context, progress io.Writer) (err error) {
	if err := network.BecomeRoot(); err != nil {
		return err
	}
	running := filepath.Join(o.dir, runningFile)
	if err := os.WriteFile(running, nil, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(running)) }()
	lab, err := o.start(ctx, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	return lab.Serve(ctx, func() { fmt.Fprintln(progress, ready) })
}

func (o *upOptions) start(ctx context.Context, progress io.Writer) (_ *metal.Lab, err error) {
	bin := o.bin
	if bin == "" {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		bin = filepath.Dir(program)
	}
	cfg := metal.Config{
		Dir: o.dir, Controller: filepath.Join(bin, "ingot-controller"), Agent: filepath.Join(bin, "ingot-agent"),
		Frontpage: o.frontpage, Bare: o.bare, Log: slog.Default(),
	}
	if o.join.Frontpage != "" {
		cfg.Join = &o.join
	}
	if !o.bare {
		fmt.Fprintln(progress, "controller, site agent, provisioning segment")
	}
	lab, err := metal.Up(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lab.Close())
		}
	}()
	if !o.bare {
		fmt.Fprintln(progress, "installer and tiny image, into the catalogue")
		if err := o.addImages(ctx, lab, cfg.Agent); err != nil {
			return nil, err
		}
	}
	for i := range o.machines {
		fw, tpm, protocol, err := o.mix(i)
		if err != nil {
			return nil, err
		}
		cfg := metal.MachineConfig{Name: fmt.Sprintf("%s-%d", o.name, i+1), Firmware: fw, BMC: protocol, TPM: tpm,
			MemoryMB: o.memory}
		if o.wornDisk {
			cfg.Disks = []chassis.Disk{
				{Serial: cfg.Name + "-d0", Bytes: metal.DiskBytes},
				{Serial: cfg.Name + "-worn", Bytes: metal.DiskBytes, BadSector: wornSector},
			}
		}
		m, err := lab.AddMachine(ctx, cfg)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, "%s: %s, BMC %s, powered off, empty disk\n", m.Name(), fw, m.Endpoint())
	}
	return lab, nil
}

func (o *upOptions) addImages(ctx context.Context, lab *metal.Lab, agent string) error {
	cache := o.cache
	if cache == "" {
		var err error
		if cache, err = debian.DefaultCacheDir(); err != nil {
			return err
		}
	}
	files, err := metal.BuildImages(ctx, filepath.Join(filepath.Dir(agent), "ingot-image"), agent, cache)
	if err != nil {
		return err
	}
	return lab.AddImages(ctx, files)
}
