package admin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) webhookTestCmd() *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a ping and say what came of it",
		Long: `Send an event of type ping, whatever the webhook subscribes to, and wait for what comes of
it: exit code 0 where the receiver took it, 5 where it did not. A ping is tried once. A paused
webhook can be tested before it is resumed.`,
		Example: "  ingot webhook test failures\n  ingot webhook test failures --no-wait",
	}
	a.oneWebhook(cmd, func(ctx context.Context, svc *command.Services, id string) error {
		d, err := svc.Admin.TestWebhook(ctx, &pb.TestWebhookRequest{WebhookId: id})
		if err == nil && !noWait {
			d, err = a.ended(ctx, svc, d)
		}
		if err != nil {
			return err
		}
		if err := a.app.Print(d, func() string { return a.app.Style().WebhookDelivery(d) }, d.GetDeliveryId()); err != nil {
			return err
		}
		if d.GetState() == "dead" {
			return &command.ExitError{Code: command.ExitFailed}
		}
		return nil
	})
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return as soon as it is queued")
	return cmd
}

// ended waits for the end of a delivery.
func (a commands) ended(
	ctx context.Context,
	svc *command.Services,
	d *pb.WebhookDelivery,
) (*pb.WebhookDelivery, error) {
	for d.GetState() == "pending" {
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-a.app.Config.Clock.After(command.PollEvery):
		}
		r, err := svc.Admin.ListWebhookDeliveries(ctx, &pb.ListWebhookDeliveriesRequest{DeliveryId: d.GetDeliveryId()})
		if err != nil {
			return d, err
		}
		if len(r.GetDeliveries()) == 0 {
			return d, &command.ExitError{
				Code: command.ExitNotFound,
				Err:  errors.New("the delivery is gone: its webhook was deleted"),
			}
		}
		d = r.GetDeliveries()[0]
	}
	return d, nil
}

func (a commands) webhookDeliveriesCmd() *cobra.Command {
	var state, delivery string
	var limit int
	cmd := &cobra.Command{
		Use:   "deliveries [WEBHOOK]",
		Short: "Show what was sent, is to be sent, or was given up",
		Long: `Show the events that a webhook, or all of them, was sent or is to be sent, newest first.
Those with state dead were given up: ingot webhook redeliver sends one again. Delivered ones are
kept for a week, dead ones for 30 days, if the controller's configuration does not say otherwise.`,
		Example: `  ingot webhook deliveries failures
  ingot webhook deliveries --state dead -o wide
  ingot webhook deliveries --delivery dlv-01k -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeWebhooks()),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &pb.ListWebhookDeliveriesRequest{State: state, DeliveryId: delivery}
			if len(args) > 0 {
				r.WebhookId = args[0]
			}
			return a.listDeliveries(cmd.Context(), r, limit)
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "pending, delivered or dead")
	f.StringVar(&delivery, "delivery", "", "only this one")
	f.IntVar(&limit, "limit", 100, "at most so many, newest first; 0 is all")
	command.Fixed(cmd, "state", "pending", "delivered", "dead")
	a.app.Must(cmd.RegisterFlagCompletionFunc("delivery", a.completeDeliveries("")))
	return cmd
}

func (a commands) listDeliveries(ctx context.Context, r *pb.ListWebhookDeliveriesRequest, limit int) error {
	svc, err := a.app.Services()
	if err != nil {
		return err
	}
	all, err := command.Pages(limit, func(size int32, token string) ([]*pb.WebhookDelivery, string, error) {
		r.PageSize, r.PageToken = size, token
		got, err := svc.Admin.ListWebhookDeliveries(ctx, r)
		return got.GetDeliveries(), got.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return a.printDeliveries(all)
}

func (a commands) printDeliveries(all []*pb.WebhookDelivery) error {
	return a.app.Print(&pb.ListWebhookDeliveriesResponse{Deliveries: all}, func() string {
		return a.app.Style().WebhookDeliveries(all, a.app.Wide(), a.app.Now()).String()
	}, command.Names(all, (*pb.WebhookDelivery).GetDeliveryId)...)
}

func (a commands) webhookRedeliverCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "redeliver DELIVERY...",
		Short: "Send events again",
		Long: `Send events once more, each under the id that it had, so that a receiver knows a repeat.
Their tries begin anew. One that is pending stays as it is. Where one cannot be sent again the
others are; the exit code is that of the first failure.`,
		Example: `  ingot webhook redeliver dlv-01k
  ingot webhook deliveries failures --state dead --limit 0 -o name | xargs ingot webhook redeliver`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeDeliveries("dead"),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			var sent []*pb.WebhookDelivery
			var first error
			for _, id := range args {
				d, err := svc.Admin.RedeliverWebhook(cmd.Context(), &pb.RedeliverWebhookRequest{DeliveryId: id})
				switch {
				case err == nil:
					sent = append(sent, d)
					continue
				case first == nil:
					first = err
				default:
					a.app.Note("%s: %s", id, command.ErrorText(err))
				}
				if client.Transient(err) || cmd.Context().Err() != nil {
					break // nor would the others arrive
				}
			}
			if len(sent) == 0 {
				return first
			}
			if err := a.printDeliveries(sent); err != nil {
				return err
			}
			return first
		}),
	}
}

func (a commands) completeDeliveries(state string) command.Completion {
	return a.app.Remote(func(ctx context.Context, svc *command.Services) ([]string, error) {
		r, err := svc.Admin.ListWebhookDeliveries(ctx, &pb.ListWebhookDeliveriesRequest{State: state, PageSize: 100})
		var out []string
		for _, d := range r.GetDeliveries() {
			out = append(out, d.GetDeliveryId()+"\t"+d.GetEventType()+" "+d.GetSubject()+" "+d.GetState())
		}
		return out, err
	})
}
