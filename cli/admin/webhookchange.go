package admin

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
)

// changeWebhook sets the fields of a webhook that paths names.
func (a commands) changeWebhook(ctx context.Context, svc *command.Services, w *pb.Webhook, paths ...string) error {
	got, err := svc.Admin.UpdateWebhook(ctx,
		&pb.UpdateWebhookRequest{Webhook: w, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	if err != nil {
		return err
	}
	return a.printWebhook(got)
}

func (a commands) webhookUpdateCmd() *cobra.Command {
	w := &pb.Webhook{}
	var all bool
	cmd := &cobra.Command{
		Use:   "update WEBHOOK",
		Short: "Change a webhook's address, events or filter",
		Long: `Change what the flags name and leave the rest. What waits already goes to the new address.
--all-events takes every type; an empty --filter takes every machine.`,
		Example: `  ingot webhook update failures --url https://hooks.example.net/failures
  ingot webhook update failures --event operation.failed --event operation.canceled
  ingot webhook update failures --all-events --filter ''`,
	}
	a.oneWebhook(cmd, func(ctx context.Context, svc *command.Services, id string) error {
		var paths []string
		for _, f := range [][2]string{{"url", "url"}, {"event", "event_types"}, {"all-events", "event_types"},
			{"filter", "filter"}, {"max-concurrency", "max_concurrency"}} {
			if cmd.Flags().Changed(f[0]) {
				paths = append(paths, f[1])
			}
		}
		if len(paths) == 0 {
			return command.Usagef("nothing to change: give --url, --event, --all-events, --filter or --max-concurrency")
		}
		w.WebhookId = id
		return a.changeWebhook(ctx, svc, w, paths...)
	})
	cmd.Flags().StringVar(&w.Url, "url", "", "address to send to")
	cmd.Flags().BoolVar(&all, "all-events", false, "take every type of event")
	a.registerWebhook(cmd, w)
	cmd.MarkFlagsMutuallyExclusive("event", "all-events")
	return cmd
}

func (a commands) webhookPauseCmd() *cobra.Command {
	return a.oneWebhook(&cobra.Command{
		Use:   "pause WEBHOOK",
		Short: "Send nothing until it is resumed",
		Long: `Send nothing more. What is pending waits. What happens meanwhile is not queued for it:
after resuming it, the receiver should walk the fleet once.`,
		Example: "  ingot webhook pause failures",
	}, func(ctx context.Context, svc *command.Services, id string) error {
		return a.changeWebhook(ctx, svc, &pb.Webhook{WebhookId: id}, "enabled")
	})
}

func (a commands) webhookResumeCmd() *cobra.Command {
	return a.oneWebhook(&cobra.Command{
		Use:   "resume WEBHOOK",
		Short: "Send again, also after it was disabled",
		Long: `Send again: what is pending goes out at once, and past failures are forgotten. Also for a
webhook that was paused because it failed, and for one whose receiver has answered 410 Gone.`,
		Example: "  ingot webhook resume failures",
	}, func(ctx context.Context, svc *command.Services, id string) error {
		return a.changeWebhook(ctx, svc, &pb.Webhook{WebhookId: id, Enabled: true}, "enabled")
	})
}

func (a commands) webhookRotateCmd() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate WEBHOOK",
		Short: "Make a new secret",
		Long: `Make a new secret and show it, this once. Until --overlap has passed events are signed with
both, so that the receiver can change over without losing any. --overlap 0s ends the old ones at
once: when one is known to others.

The call is not repeated when its answer is lost. ingot webhook get shows whether there is a new
secret; rotate again then.`,
		Example: "  ingot webhook rotate failures\n  ingot webhook rotate failures --overlap 0s",
	}
	a.oneWebhook(cmd, func(ctx context.Context, svc *command.Services, id string) error {
		r := &pb.UpdateWebhookRequest{Webhook: &pb.Webhook{WebhookId: id}, RotateSecret: true}
		if cmd.Flags().Changed("overlap") {
			r.SecretOverlap = durationpb.New(overlap)
		}
		// A second secret would be made, and only that one shown.
		w, err := svc.Admin.UpdateWebhook(ctx, r, client.Once())
		if err != nil {
			return err
		}
		return a.printSecret(w)
	})
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the old secrets go on signing, at most 720h")
	return cmd
}
