package command

import (
	"context"
	"errors"
	"io"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/view"
)

// WatchRollout shows a rollout until it has ended, each machine that fails at once. A lost connection is made again.
func (a *App) WatchRollout(ctx context.Context, svc *Services, id string) error {
	scr, cfg := a.People()
	live := view.NewRolloutLive(cfg)
	var last *pb.Rollout
	show := func(r *pb.Rollout) error {
		if r.GetVersion() == last.GetVersion() {
			return nil
		}
		last = r
		if a.Document() {
			return a.Stream(r, func() string { return "" }, id)
		}
		text := ""
		if live.NewFailures(r) {
			failed, err := failedMachines(ctx, svc, id)
			if err != nil {
				return err
			}
			text = live.Failed(failed)
		}
		scr.Put(text+live.Change(r), live.Status(r, a.Now()))
		return scr.Err
	}
	var back apiclient.Backoff
	for lost := false; ; {
		err := readRollout(ctx, svc, id, show)
		over := errors.Is(err, io.EOF)
		switch {
		case over && view.RolloutEnded(last):
			if !a.Document() {
				scr.Put(live.End(last), "")
			}
			return exitByRollout(last)
		case ctx.Err() != nil:
			scr.Put("", "")
			a.Note("%s goes on. To come back: ingot rollout watch %s   To stop it: ingot rollout pause %s", id, id, id)
			return err
		case !over && !apiclient.Transient(err):
			return err
		}
		if !lost && !over {
			lost = true
			a.Note("! connection lost, retrying…")
		}
		select {
		case <-ctx.Done():
		case <-a.Config.Clock.After(back.Next()):
		}
	}
}

// readRollout hands on the messages of one stream, and returns why it has ended: io.EOF where the server has.
func readRollout(ctx context.Context, svc *Services, id string, show func(*pb.Rollout) error) error {
	stream, err := svc.Rollouts.WatchRollout(ctx, &pb.WatchRolloutRequest{RolloutId: id})
	for err == nil {
		var r *pb.Rollout
		if r, err = stream.Recv(); err == nil {
			err = show(r)
		}
	}
	return err
}

// failedMachines are those of a rollout that have failed, in its order.
func failedMachines(ctx context.Context, svc *Services, id string) ([]*pb.RolloutMachine, error) {
	return All[*pb.RolloutMachine](
		ctx,
		0,
		svc.Rollouts.ListRolloutMachines,
		&pb.ListRolloutMachinesRequest{RolloutId: id, Filter: "state=FAILED"},
	)
}

func exitByRollout(r *pb.Rollout) error {
	switch r.GetState() {
	case pb.Rollout_FAILED, pb.Rollout_COMPLETED_WITH_FAILURES:
		return &ExitError{Code: ExitFailed}
	case pb.Rollout_CANCELED:
		return &ExitError{Code: ExitCanceled}
	}
	return nil
}
