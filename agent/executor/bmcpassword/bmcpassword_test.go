package bmcpassword_test

import (
	"context"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/bmcpassword"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// next are the passwords of the commands, in their order.
var next = map[string][2]string{
	"c-1":       {"first", "Kq7.wX2-mB9rT4vZ"},
	"c-1-again": {"Kq7.wX2-mB9rT4vZ", "Zv4.tR9-bM2xW7qK"},
}

func with(password string) bmc.Credentials {
	return bmc.Credentials{Username: "u", Password: password, Allowed: []string{"127.0.0.0/8"}}
}

// TestKilledAtEachEffect changes the password of a BMC's account once, wherever the agent is killed.
func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, bmcpassword.Declaration, func(t *testing.T) executortest.World {
		service, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{
			Chassis: &lab.Memory{Info: lab.About{Name: "m-1"}}, Listen: "127.0.0.1:0", User: "u", Password: "first",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := service.Close(); err != nil {
				t.Error(err)
			}
		})
		p := bmc.New(bmc.Config{
			Credentials: func(context.Context, provider.Target) (bmc.Credentials, error) { return with("first"), nil },
			Clock:       clock.Real(), Log: testkit.Logger(t), Within: 1500 * time.Millisecond, Timeout: 5 * time.Second,
		})
		t.Cleanup(func() { p.Close(context.Background()) })
		return executortest.World{
			Spec: &fleetv1.CommandSpec{
				CommandId: "c-1", OperationId: "op-1", TargetId: "m-1", BmcEndpoint: service.Endpoint(),
				BmcCredentialsRef: "rack-1",
				Action:            &fleetv1.CommandSpec_BmcPassword{BmcPassword: &fleetv1.BMCPasswordAction{}},
			},
			Executor: func() executor.Executor {
				return bmcpassword.New(bmcpassword.Config{
					BMCs: p, Clock: clock.Real(),
					Order: func(_ context.Context, id string) (bmcpassword.Order, error) {
						return bmcpassword.Order{PasswordChange: bmc.PasswordChange{
							Current: with(next[id][0]), New: with(next[id][1]),
						}}, nil
					},
					Settle: func(context.Context, string, int64, bool) error { return nil },
				})
			},
			Effects: func() int { return service.Counts().PasswordChanges },
		}
	})
}
