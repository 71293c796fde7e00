package controller

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/console"
	"github.com/ingot-metal/ingot/internal/task"
)

// runREST serves the frontpage's calls as JSON. They go to a server of the same kind as the frontpage's, behind the
// same interceptors, which nobody but the gateway can reach.
func (c *Controller) runREST(ctx context.Context) error {
	pipe := gateway.NewPipe()
	conn, err := grpc.NewClient("passthrough:///frontpage", grpc.WithContextDialer(pipe.Dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // inside the process
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return fmt.Errorf("open the gateway's connection: %w", err)
	}
	defer conn.Close()
	guard := auth.GuardConfig{Listener: auth.Frontpage, Tokens: c.tokens}
	knock := c.knock(guard)
	knock.conns = c.bounded.rest
	var provider console.Provider
	if c.signOn != nil {
		provider = c.signOn
	}
	pages, err := console.New(console.Config{
		Provider: provider, SignedOn: c.tokens.Saw, RefusedSignOn: c.tokens.RefusedSignOn,
		Identify: c.tokens.Identify, Sealer: c.secrets, Clock: c.clock, Logger: c.log, Ready: c.gate,
		SignOuts: c.store.Access, PublicURL: c.cfg.SignOn.ConsoleURL, Names: c.cfg.TLS.Names,
		Requested: c.bounded.rest.Requested, Known: c.bounded.rest.Known, Refused: c.bounded.rest.Refused,
	})
	if err != nil {
		return fmt.Errorf("make the console: %w", err)
	}
	gateway, err := gateway.New(gateway.Config{
		Conn: conn, MaxBody: int64(c.cfg.MaxMessageBytes), Logger: c.log, Knock: knock.rest,
		Requested: c.bounded.rest.Requested, Front: pages.Handler,
	})
	if err != nil {
		return fmt.Errorf("make the REST gateway: %w", err)
	}
	server := c.server(guard, insecure.NewCredentials(), c.behindDoor()...)
	c.registerFrontpage(server)
	g, _ := task.New(ctx)
	g.Go("rest calls", c.serve(server, pipe))
	g.Go("rest", func(ctx context.Context) error { return gateway.Serve(ctx, c.listeners.rest, nil) })
	return g.Wait()
}
