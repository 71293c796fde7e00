package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/lab/benchmetal/guest"
)

const (
	imageFile = "image.raw.zst"
	disk      = "/dev/vda"
	// What the machine says on its console.
	sayUp      = "BY HAND: up"
	sayWritten = "BY HAND: written"
	sayFailed  = "BY HAND: failed: "
)

// inside is the program of the machine that is installed by hand. It ends by the machine's reset.
func inside(ctx context.Context, sys *pid1.System) error {
	fmt.Println(sayUp)
	if err := install(ctx, sys.Installer().Site+"/"+imageFile); err != nil {
		fmt.Println(sayFailed + err.Error())
		return nil // powers off
	}
	fmt.Println(sayWritten)
	if err := exec.CommandContext(ctx, "/usr/bin/busybox", "reboot", "-f").Run(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// install is the pipe that one types.
func install(ctx context.Context, url string) error {
	if err := guest.MakeExecutable(); err != nil {
		return err
	}
	pipe := []*exec.Cmd{
		exec.CommandContext(ctx, "/usr/bin/busybox", "wget", "-q", "-O", "-", url),
		exec.CommandContext(ctx, "/usr/bin/zstd", "-dcq"),
		exec.CommandContext(ctx, "/usr/bin/dd", "of="+disk, "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync"),
	}
	for i, cmd := range pipe {
		cmd.Stderr = os.Stderr
		if i == 0 {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		// The programs have copies; these would keep the pipe open after them.
		defer r.Close()
		defer w.Close()
		pipe[i-1].Stdout, cmd.Stdin = w, r
	}
	return runPipe(pipe)
}

func runPipe(pipe []*exec.Cmd) error {
	var errs []error
	for _, cmd := range pipe {
		if err := cmd.Start(); err != nil {
			return err
		}
		// From here on only the program holds its ends, so that the next one sees the end of the data.
		for _, end := range []any{cmd.Stdin, cmd.Stdout} {
			if f, ok := end.(*os.File); ok {
				errs = append(errs, f.Close())
			}
		}
	}
	for _, cmd := range pipe {
		if err := cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cmd.Path, err))
		}
	}
	return errors.Join(errs...)
}
