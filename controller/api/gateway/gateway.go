package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	gatewayv1 "github.com/ingot-metal/ingot/api/gateway/baremetal/v1"
	"github.com/ingot-metal/ingot/api/openapi"
)

// DocumentPath is where the OpenAPI document is served, without authentication: it has no data on the fleet.
const DocumentPath = "/openapi.json"

// Config has the services, and the limits.
type Config struct {
	// Conn leads to the services of baremetal.v1.
	Conn grpc.ClientConnInterface
	// MaxBody bounds the body of a request, in bytes; 0 means 4 MiB, gRPC's own limit.
	MaxBody int64
	// CallTimeout bounds unary calls; 0 means 60 s.
	CallTimeout time.Duration
	// BodyTimeout is how long a client may take to send its body. WriteTimeout is how long it may take to read a single
	// write; 0 means 30 s. Neither bounds the length of a stream.
	BodyTimeout, WriteTimeout time.Duration
	// PreAuthorize, if set, refuses a request without a known token before its body is read. method is gRPC's. It returns
	// nil when the caller is known.
	PreAuthorize func(ctx context.Context, method string, authorization []string) error
	// Requested, if set, is called with each request before anything else is done with it.
	Requested func(ctx context.Context)
	// Front, if set, makes the handler of the listener out of the gateway's.
	Front func(http.Handler) http.Handler
	// BodyBytes bounds the bodies that are held at a time, in bytes; 0 means 64 MiB.
	BodyBytes int64
	// Logger is slog.Default() when nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20
	}
	if c.BodyBytes == 0 {
		c.BodyBytes = 64 << 20
	}
	for _, d := range []struct {
		set *time.Duration
		to  time.Duration
	}{{&c.CallTimeout, time.Minute}, {&c.BodyTimeout, 30 * time.Second}, {&c.WriteTimeout, 30 * time.Second}} {
		if *d.set == 0 {
			*d.set = d.to
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Gateway is the HTTP handler.
type Gateway struct {
	cfg    Config
	routes routes
	mux    *runtime.ServeMux
	// machines is the frontpage's service of machines.
	machines baremetalv1.MachineServiceClient
	// bodies is how many bytes of bodies are held now.
	bodies atomic.Int64
}

// New makes the gateway. Its errors are bugs: an OpenAPI document that cannot be read, a route that cannot be
// registered.
func New(c Config) (*Gateway, error) {
	g := &Gateway{cfg: c.withDefaults()}
	var err error
	if g.routes, err = readRoutes(openapi.Document); err != nil {
		return nil, err
	}
	g.routes = append(g.routes, g.ownRoutes()...)
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, codec{}),
		runtime.WithErrorHandler(g.callFailed),
		runtime.WithStreamErrorHandler(streamFailed),
		runtime.WithMiddlewares(g.agreeingPath),
		runtime.WithForwardResponseOption(beginStream),
		runtime.WithForwardResponseOption(entityTag),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptReserved),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisableChunkedEncoding(), // net/http does it where it is due
		// The token goes through by itself; but for a caller's trace no other header means anything behind here, or leaves.
		runtime.WithIncomingHeaderMatcher(traceHeader),
		runtime.WithOutgoingHeaderMatcher(noHeader),
		runtime.WithOutgoingTrailerMatcher(noHeader),
	)
	calls := caller{g.cfg.Conn, g.cfg.CallTimeout}
	g.machines = baremetalv1.NewMachineServiceClient(calls)
	return g, g.register(calls)
}

// ownRoutes are the paths that are not one call each.
func (g *Gateway) ownRoutes() routes {
	const list, add = baremetalv1.MachineService_ListMachines_FullMethodName,
		baremetalv1.AdminService_UploadImage_FullMethodName
	return routes{
		{split(DocumentPath), methods{http.MethodGet: {serve: g.document}}},
		{split(DescriptorsPath), methods{http.MethodGet: {serve: g.serveDescriptors}}},
		{split(ServiceConfigPath), methods{http.MethodGet: {serve: g.serveServiceConfig}}},
		{split(TargetsPath), methods{http.MethodGet: {serve: g.targets, call: list, query: []string{"filter", "port"}}}},
		{split(UploadPath + "{image_ref}"), methods{http.MethodPut: {serve: g.upload, call: add, query: uploadQuery}}},
	}
}

// register adds the handlers of every service.
func (g *Gateway) register(c grpc.ClientConnInterface) error {
	ctx := context.Background() // not used by the generated functions
	for _, err := range []error{
		gatewayv1.RegisterMachineServiceHandlerClient(ctx, g.mux, baremetalv1.NewMachineServiceClient(c)),
		gatewayv1.RegisterOperationServiceHandlerClient(ctx, g.mux, baremetalv1.NewOperationServiceClient(c)),
		gatewayv1.RegisterPlanServiceHandlerClient(ctx, g.mux, baremetalv1.NewPlanServiceClient(c)),
		gatewayv1.RegisterRunServiceHandlerClient(ctx, g.mux, baremetalv1.NewRunServiceClient(c)),
		gatewayv1.RegisterNodeServiceHandlerClient(ctx, g.mux, baremetalv1.NewNodeServiceClient(c)),
		gatewayv1.RegisterWorkflowServiceHandlerClient(ctx, g.mux, baremetalv1.NewWorkflowServiceClient(c)),
		gatewayv1.RegisterScriptServiceHandlerClient(ctx, g.mux, baremetalv1.NewScriptServiceClient(c)),
		gatewayv1.RegisterClusterServiceHandlerClient(ctx, g.mux, baremetalv1.NewClusterServiceClient(c)),
		gatewayv1.RegisterMAASServiceHandlerClient(ctx, g.mux, baremetalv1.NewMAASServiceClient(c)),
		gatewayv1.RegisterBudgetServiceHandlerClient(ctx, g.mux, baremetalv1.NewBudgetServiceClient(c)),
		gatewayv1.RegisterRolloutServiceHandlerClient(ctx, g.mux, baremetalv1.NewRolloutServiceClient(c)),
		gatewayv1.RegisterAccessServiceHandlerClient(ctx, g.mux, baremetalv1.NewAccessServiceClient(c)),
		gatewayv1.RegisterAuthorityServiceHandlerClient(ctx, g.mux, baremetalv1.NewAuthorityServiceClient(c)),
		gatewayv1.RegisterViewServiceHandlerClient(ctx, g.mux, baremetalv1.NewViewServiceClient(c)),
		gatewayv1.RegisterAdminServiceHandlerClient(ctx, g.mux, baremetalv1.NewAdminServiceClient(c)),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func noHeader(string) (string, bool) { return "", false }

// traceHeader lets the W3C Trace Context through.
func traceHeader(name string) (string, bool) { return "traceparent", name == "Traceparent" }

// beginStream sends the head of a stream's answer as soon as the call stands: a client that has it misses nothing that
// happens from then on, even where nothing happens for long.
func beginStream(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	if m != nil {
		return nil
	}
	w.Header().Set("Content-Type", streamType)
	w.WriteHeader(http.StatusOK)
	return http.NewResponseController(w).Flush()
}
