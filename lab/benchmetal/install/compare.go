package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// compare installs by hand and through the API in turns, so that a host that becomes slower does so for both.
func compare(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("/tmp", "bi-") // short, for the sake of Unix sockets in it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := prepareByHand(ctx, o, dir); err != nil {
		return fmt.Errorf("prepare the way by hand: %w", err)
	}
	for _, firmware := range o.firmwares() {
		var hand, api []float64
		for run := range o.runs {
			h, a, err := both(ctx, o, filepath.Join(dir, fmt.Sprintf("lab%d", run)), dir, firmware, out)
			if err != nil {
				return fmt.Errorf("%s: %w", firmware, err)
			}
			hand, api = append(hand, h), append(api, a)
		}
		h, a := median(hand), median(api)
		fmt.Fprintf(out, "%s: %.1f s through the API, %.1f s by hand (medians of %d): %.2f times\n\n", firmware, a, h, o.runs,
			a/h)
	}
	return nil
}

func both(
	ctx context.Context, o options, lab, dir string, firmware vm.Firmware, out io.Writer,
) (hand, api float64, err error) {
	began, stages, err := byHand(ctx, dir, firmware)
	if err != nil {
		return 0, 0, fmt.Errorf("by hand: %w", err)
	}
	hand = stages[len(stages)-1].Ended.Sub(began).Seconds()
	fmt.Fprintf(out, "%s, by hand: %.1f s\n", firmware, hand)
	metal.PrintStages(out, began, stages)
	op, stages, err := byIngot(ctx, o, lab, firmware)
	if err != nil {
		return 0, 0, fmt.Errorf("through the API: %w", err)
	}
	created := op.GetCreatedAt().AsTime()
	api = op.GetFinishedAt().AsTime().Sub(created).Seconds()
	fmt.Fprintf(out, "%s, through the API: %.1f s\n", firmware, api)
	metal.PrintStages(out, created, stages)
	return hand, api, nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
