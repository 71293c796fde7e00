package controller

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/controller/console"
	"github.com/ingot-metal/ingot/internal/task"
)

// runREST serves the frontpage's calls as JSON. They go to a server of the same kind as the frontpage's, behind the
// same interceptors, which only the gateway can reach.
func (c *Controller) runREST(ctx context.Context) error {
	pipe := gateway.NewPipe()
	conn, err := grpc.NewClient("passthrough:///frontpage", grpc.WithContextDialer(pipe.Dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // inside the process
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return fmt.Errorf("open the gateway's connection: %w", err)
	}
	defer conn.Close()
	rest := c.servers.REST()
	var provider console.Provider
	if c.signOn != nil {
		provider = c.signOn
	}
	pages, err := console.New(console.Config{
		Provider: provider, SignedOn: c.tokens.Saw, RefusedSignOn: c.tokens.RefusedSignOn,
		Identify: c.tokens.Identify, Sealer: c.secrets, Clock: c.clock, Logger: c.log, Ready: c.servers.Gate,
		SignOuts: c.store.Access, PublicURL: c.cfg.SignOn.ConsoleURL, Names: c.cfg.TLS.Names,
		Requested: rest.Listener.Requested, Known: rest.Listener.Known, Refused: rest.Listener.Refused,
	})
	if err != nil {
		return fmt.Errorf("make the console: %w", err)
	}
	gateway, err := gateway.New(gateway.Config{
		Conn: conn, MaxBody: int64(c.cfg.MaxMessageBytes), Logger: c.log, Knock: rest.Knock,
		Requested: rest.Listener.Requested, Front: pages.Handler,
	})
	if err != nil {
		return fmt.Errorf("make the REST gateway: %w", err)
	}
	c.registerFrontpage(rest.Server)
	g, _ := task.New(ctx)
	g.Go("rest calls", func(ctx context.Context) error { return c.servers.Run(ctx, rest.Server, pipe) })
	g.Go("rest", func(ctx context.Context) error { return gateway.Serve(ctx, rest.Listener, nil) })
	return g.Wait()
}
