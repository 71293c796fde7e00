package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor/script"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/ssh"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/internal/safetext"
	"github.com/ingot-metal/ingot/internal/task"
)

// SiteConfig has the interfaces that a site agent may serve, and the intervals at which it polls BMCs and others.
type SiteConfig struct {
	// Interfaces are the network devices whose segments may be served.
	Interfaces []string
	TFTPDir    string
	CacheDir   string
	CacheBytes int64
	// HTTPPort is for segments that name none.
	HTTPPort int
	// MediaPort is where BMCs fetch images over http; the one behind it takes https.
	MediaPort int
	// BMCPoll is how often each BMC is asked how it is; its machine's hardware is read every twentieth time.
	BMCPoll time.Duration
	// MAASPoll is how often MAAS is asked for the site's machines; 0 means 30 s. While it works for a command it is asked
	// every 5 s, or as often as this.
	MAASPoll time.Duration
	// ScriptDir is where machines remember the scripts that were run on them; empty means the default of package ssh.
	ScriptDir string
	// ClusterPoll is how often a cluster is asked how far it is; 0 means the default of package cluster.
	ClusterPoll time.Duration
}

// mediaFile has the records of images that BMCs have attached; it holds no secret.
const mediaFile = "media.json"

// sayOf puts a line into the log of an operation.
func (l *life) sayOf(ctx context.Context, operationID, line string) {
	err := l.store.Append(ctx, &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{
		OperationId: operationID, Stream: "agent", Data: []byte(line + "\n"),
	}}}, l.a.cfg.Clock.Now())
	if err != nil && ctx.Err() == nil {
		l.a.cfg.Log.Warn("line of an operation's log lost", "operation_id", operationID, "error", err)
	}
}

// bmcFile has the records of BMCs; it holds no secret.
const bmcFile = "bmc.json"

// siteWork is what a site agent does beside commands.
type siteWork struct {
	service *site.Service
	bmcs    *bmc.Provider
	prober  *bmc.Prober
	// consoles of machines that are being installed.
	consoles *consoles
	// regions of MAAS, and what they say of the site's machines.
	regions *regions
	maas    *maas.Prober
	// discovery is the one that is under way.
	discovery discoveryRun
}

// setUpSite makes the site's own provider and its services.
func (l *life) setUpSite(log *slog.Logger) error {
	cfg := l.a.cfg.Site
	if cfg == nil {
		return nil
	}
	w := &siteWork{}
	w.bmcs = bmc.New(bmc.Config{
		Credentials: l.controller.bmcCredentials, Clock: l.a.cfg.Clock, Log: log,
		Memory: bmc.FileMemory(filepath.Join(l.a.cfg.StateDir, bmcFile)),
	})
	if l.providers == nil {
		l.providers = site.Providers{}
	}
	l.providers[w.bmcs.Name()] = w.bmcs
	w.prober = bmc.NewProber(bmc.ProberConfig{
		Provider: w.bmcs, Clock: l.a.cfg.Clock, Log: log, Every: cfg.BMCPoll,
		HardwareEvery: readHardware * cfg.BMCPoll,
		Report:        func(o bmc.Observation) { w.service.Reports().BMC(bmcReport(o)) },
		Hardware:      func(r provider.Reading) { w.service.Reports().Hardware(hardwareReport(r)) },
	})
	w.consoles = newConsoles(&consoles{
		capture: w.bmcs.Console, clock: l.a.cfg.Clock, log: log,
		keep: func(ctx context.Context, e *fleetv1.Event) error { return l.store.Append(ctx, e, l.a.cfg.Clock.Now()) },
	})
	l.setUpMAAS(w, log)
	var err error
	w.service, err = site.NewService(site.ServiceConfig{
		Interfaces: cfg.Interfaces, TFTPDir: cfg.TFTPDir, CacheDir: cfg.CacheDir, CacheBytes: cfg.CacheBytes,
		HTTPPort: cfg.HTTPPort, MediaPort: cfg.MediaPort,
		BMCs: w.bmcs, MediaFile: filepath.Join(l.a.cfg.StateDir, mediaFile), Say: l.sayOf,
		Call: l.runner.Call, DialController: l.a.cfg.Dial, Store: l.store.Site(), Clock: l.a.cfg.Clock, Log: log,
		PhonedHome: l.phonedHome,
		Applied: func(doc *fleetv1.SiteDocument) {
			for _, t := range doc.GetBmcs() {
				w.bmcs.Pin(t.GetEndpoint(), t.GetCertificateSha256())
				if t.UnparkedAt != nil {
					w.bmcs.Unpark(t.GetEndpoint(), t.GetUnparkedAt().AsTime())
				}
			}
			targets := bmcTargets(doc.GetBmcs())
			w.bmcs.Know(targets)
			w.prober.Replace(targets)
			w.consoles.follow(doc)
			w.maas.Replace(maasTargets(doc.GetProviders()))
		},
	})
	l.site = w
	return err
}

// scripts is what the executor of scripts needs.
func (l *life) scripts() script.Config {
	return script.Config{Open: l.site.service.OpenBlob, Credentials: l.controller.sshCredentials, Clock: l.a.cfg.Clock,
		Base: l.a.cfg.Site.ScriptDir}
}

// sshCredentials asks the controller. They stay in memory.
func (ctl controllerClient) sshCredentials(ctx context.Context, machineID, ref string) (c ssh.Credentials, err error) {
	err = ctl.call(ctx, func(ctx context.Context, client fleetv1.AgentServiceClient) error {
		answer, err := client.GetSSHCredentials(ctx, &fleetv1.GetSSHCredentialsRequest{MachineId: machineID,
			CredentialsRef: ref})
		c = ssh.Credentials{Username: answer.GetUsername(), PrivateKey: answer.GetPrivateKey()}
		return err
	})
	if err != nil {
		return ssh.Credentials{}, fmt.Errorf("ask for the SSH credentials of a machine: %w", err)
	}
	return c, nil
}

// runSite starts what a site agent consists of. When a newer process has this identity, only that one may act on the
// machines of the site: commands, BMCs and the session end here. The segments are served on, so that no machine loses
// its address; nothing can be installed through a site without a session.
func (l *life) runSite(group *task.Group) {
	orders, endOrders := context.WithCancel(context.Background())
	group.Go("session", func(ctx context.Context) error {
		err := l.runSession(ctx)
		if !errors.Is(err, session.ErrSuperseded) {
			return err
		}
		l.a.cfg.Log.Error(
			"a newer process has this agent's identity: BMCs and commands are left to it, the segments are served on",
			"agent_id", l.who.AgentID)
		endOrders()
		<-ctx.Done()
		return err
	})
	underOrders := func(name string, run func(context.Context) error) {
		group.Go(name, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(orders, cancel)()
			err := run(ctx)
			if orders.Err() != nil {
				return nil
			}
			return err
		})
	}
	underOrders("dispatcher", l.dispatcher.Run)
	underOrders("bmcs", l.runBMCs)
	underOrders("consoles", l.site.consoles.run)
	underOrders("maas", l.site.maas.Run)
	group.Go("site", func(ctx context.Context) error {
		defer endOrders()
		return l.site.service.Run(ctx, orders)
	})
}

// logOut is how long BMCs may take to end their sessions.
const logOut = 5 * time.Second

func (l *life) runBMCs(ctx context.Context) error {
	err := l.site.prober.Run(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logOut)
	defer cancel()
	l.site.bmcs.Close(ctx)
	return err
}

func bmcTargets(list []*fleetv1.BMCTarget) []provider.Target {
	var out []provider.Target
	for _, t := range list {
		out = append(out, site.BMCTarget(t))
	}
	return out
}

func bmcReport(o bmc.Observation) *fleetv1.BMCObservation {
	return &fleetv1.BMCObservation{
		MachineId: o.MachineID, Reachable: o.Reachable, PowerState: string(o.Power), Protocol: o.Protocol,
		Reason: o.Reason, Message: o.Message, SeenAt: timestamppb.New(o.SeenAt),
		CertificateSha256: o.Certificates.Pinned, OfferedCertificateSha256: o.Certificates.Offered, Endpoint: o.Endpoint,
	}
}

// readHardware is after how many times of BMCPoll the hardware is read again.
const readHardware = 20

// reported is how many sensors of one machine are reported at most.
const reported = 1024

// hardwareReport converts a reading. Firmware's texts are cleaned: no byte of them may spoil the report of the whole
// site.
func hardwareReport(r provider.Reading) *fleetv1.HardwareReading {
	text := safetext.Line
	out := &fleetv1.HardwareReading{MachineId: r.MachineID, Endpoint: r.Endpoint, ReadAt: timestamppb.New(r.ReadAt),
		IdentifyLight: string(r.Light)}
	for _, n := range r.NotRead {
		out.NotRead = append(out.NotRead, text(n))
	}
	for _, s := range r.Sensors[:min(len(r.Sensors), reported)] {
		m := &fleetv1.HardwareSensor{Name: text(s.Name), Kind: text(s.Kind), Unit: text(s.Unit), State: text(s.State),
			Health: text(s.Health)}
		if !s.Stateful {
			m.Value = &s.Value
		}
		out.Sensors = append(out.Sensors, m)
	}
	for _, e := range r.Events {
		m := &fleetv1.HardwareEvent{EventId: text(e.ID), Severity: text(e.Severity), Message: text(e.Message)}
		if !e.At.IsZero() {
			m.At = timestamppb.New(e.At)
		}
		out.Events = append(out.Events, m)
	}
	return out
}
