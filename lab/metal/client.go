package metal

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Client speaks to a controller as an administrator who knows nothing but the API.
type Client struct {
	conn       *grpc.ClientConn
	Machines   pb.MachineServiceClient
	Operations pb.OperationServiceClient
	Plans      pb.PlanServiceClient
	Admin      pb.AdminServiceClient
	Nodes      pb.NodeServiceClient
	Workflows  pb.WorkflowServiceClient
}

// bearer sends the token with every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

func newClient(to Controller) (*Client, error) {
	ca, err := os.ReadFile(to.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the controller's CA: %w", err)
	}
	token, err := os.ReadFile(to.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's token: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the controller's CA does not parse")
	}
	conn, err := grpc.NewClient(to.Frontpage, grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(string(token)))),
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "")),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	return &Client{
		conn: conn, Machines: pb.NewMachineServiceClient(conn), Operations: pb.NewOperationServiceClient(conn),
		Plans: pb.NewPlanServiceClient(conn), Admin: pb.NewAdminServiceClient(conn),
		Nodes: pb.NewNodeServiceClient(conn), Workflows: pb.NewWorkflowServiceClient(conn),
	}, nil
}

func (c *Client) close() error { return c.conn.Close() }
