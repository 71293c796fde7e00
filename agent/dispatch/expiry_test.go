package dispatch_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/internal/clock"
)

// fast is a wall clock that was set six hours ahead.
type fast struct{ clock.Clock }

func (c fast) Now() time.Time { return c.Clock.Now().Add(6 * time.Hour) }

// TestExpiryIsJudgedByTheControllersTime: an agent that was restarted has heard no time until it has a session.
func TestExpiryIsJudgedByTheControllersTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expires time.Duration
		outcome fleetv1.CommandResult_Outcome
		reason  string
	}{
		"not expired": {time.Hour, fleetv1.CommandResult_SUCCEEDED, ""},
		"expired":     {time.Millisecond, fleetv1.CommandResult_REFUSED, "COMMAND_EXPIRED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, exec := memory(t), &scriptedExecutor{}
			before := startAlone(t, store, exec, nil)
			if err := store.SawControllerTime(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			id := before.order(&fleetv1.CommandSpec{TimeoutMs: 60000, ExpiresAt: timestamppb.New(time.Now().Add(c.expires))})
			before.end()

			after := startAlone(t, store, exec, func(cfg *dispatch.Config) { cfg.Clock = fast{clock.Real()} })
			<-time.After(100 * time.Millisecond) // alone it must not decide anything
			left, err := store.Unsettled(t.Context())
			if err != nil || len(left) != 1 || left[0].State != "RECEIVED" {
				t.Fatalf("without a session: %v %v", left, err)
			}
			after.attach()
			want(t, after.l.result(t, id), c.outcome, c.reason)
		})
	}
}
