package agent

import (
	"context"
	"fmt"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/executor/join"
	"github.com/ingot-metal/ingot/agent/provider/kube"
)

// clusters is what the executor of acts in clusters needs.
func (l *life) clusters() cluster.Config {
	return cluster.Config{Access: l.controller.clusterAccess, Clock: l.a.cfg.Clock, Poll: l.a.cfg.Site.ClusterPoll}
}

// clusterAccess asks the controller. It stays in memory.
func (ctl controllerClient) clusterAccess(ctx context.Context, commandID string) (a cluster.Access, err error) {
	err = ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		r, err := client.GetClusterAccess(ctx, &fleetv1.GetClusterAccessRequest{CommandId: commandID})
		a = cluster.Access{
			Config: kube.Config{
				Server: r.GetServer(), CAPEM: r.GetCaPem(), Token: r.GetBearerToken(), CertificatePEM: r.GetClientCertificatePem(),
				KeyPEM: r.GetClientKeyPem(),
			},
			TokenID: r.GetJoinToken().GetId(), TokenSecret: r.GetJoinToken().GetSecret(),
			TokenLife: time.Duration(r.GetJoinToken().GetLifetimeSeconds()) * time.Second,
		}
		return err
	})
	if err != nil {
		return cluster.Access{}, fmt.Errorf("ask for the credentials of a cluster: %w", err)
	}
	return a, nil
}

// joinMaterial asks the controller what to join a cluster with.
func (ctl controllerClient) joinMaterial(ctx context.Context, commandID string) (m join.Material, err error) {
	err = ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		r, err := client.GetJoinMaterial(ctx, &fleetv1.GetJoinMaterialRequest{CommandId: commandID})
		m = join.Material{APIServer: r.GetApiServer(), CAHashes: r.GetCaHashes(), Token: r.GetJoinToken().GetId() + "." +
			r.GetJoinToken().GetSecret()}
		return err
	})
	if err != nil {
		return join.Material{}, fmt.Errorf("ask for what to join the cluster with: %w", err)
	}
	return m, nil
}
