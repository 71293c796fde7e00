// Command ingot-cluster-api is the Cluster API infrastructure provider of Ingot: it takes machines of the fleet into
// clusters, installs them, and releases them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/integrations/cluster-api/api/v1alpha1"
	"github.com/ingot-metal/ingot/integrations/cluster-api/provider"
)

type options struct {
	ingot             client.Config
	namespace         string
	metrics, health   string
	poll              time.Duration
	elect             bool
	electionNamespace string
}

func main() {
	var o options
	o.flags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (o *options) flags(f *flag.FlagSet) {
	f.StringVar(&o.ingot.Server, "server", os.Getenv("INGOT_SERVER"), "host:port of Ingot's controller (INGOT_SERVER)")
	f.StringVar(&o.ingot.CAFile, "ca-file", os.Getenv("INGOT_CA_FILE"), "its root certificate (INGOT_CA_FILE)")
	f.StringVar(&o.ingot.TokenFile, "token-file", os.Getenv("INGOT_TOKEN_FILE"),
		"file with a token of scope operate (INGOT_TOKEN_FILE)")
	f.StringVar(&o.namespace, "namespace", "", "the namespace to work in; empty: all")
	f.StringVar(&o.metrics, "metrics", "0", "host:port of the metrics; 0: none")
	f.StringVar(&o.health, "health", "0", "host:port of /healthz and /readyz; 0: none")
	f.DurationVar(&o.poll, "poll", 15*time.Second, "how often a machine in service is looked at")
	f.BoolVar(&o.elect, "leader-elect", false, "let one of several processes work (they are safe without)")
	f.StringVar(&o.electionNamespace, "leader-election-namespace", "ingot-system", "where its lease is")
}

func run(o options) error {
	// The reconcilers try again by themselves, and say meanwhile that they wait.
	o.ingot.Patience = -1
	conn, err := client.Dial(o.ingot)
	if err != nil {
		return err
	}
	defer conn.Close()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register resources: %w", err)
		}
	}
	settings := ctrl.Options{Scheme: scheme, Metrics: metrics.Options{BindAddress: o.metrics},
		HealthProbeBindAddress: o.health,
		LeaderElection:         o.elect, LeaderElectionID: "ingot-cluster-api", LeaderElectionNamespace: o.electionNamespace,
		// The process ends when the manager does, so that the next one need not wait for the lease to expire.
		LeaderElectionReleaseOnCancel: true}
	if o.namespace != "" {
		settings.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the management cluster: %w", err)
	}
	mgr, err := ctrl.NewManager(config, settings)
	if err != nil {
		return fmt.Errorf("connect to the management cluster: %w", err)
	}
	if err := probes(mgr); err != nil {
		return fmt.Errorf("serve probes: %w", err)
	}
	fleet := provider.NewFleet(conn)
	machines := provider.MachineReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Fleet: fleet, Poll: o.poll}
	if err := machines.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("watch machines: %w", err)
	}
	clusters := provider.ClusterReconciler{Client: mgr.GetClient(), Fleet: fleet, Poll: o.poll}
	if err := clusters.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("watch clusters: %w", err)
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// probes adds /healthz, and /readyz, which fails until the management cluster has been read. A standby is ready, too.
func probes(mgr ctrl.Manager) error {
	read := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the resources of the management cluster are not read yet")
		}
		return nil
	}
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("cache", read))
}
