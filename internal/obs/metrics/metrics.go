// Package metrics holds the controller's Prometheus metrics. Their help texts make docs/reference/metrics.md.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
)

// Stages of a command's life that CommandLatency measures, each from the moment the command was decided.
const (
	// StageDispatch ends when the executor has acknowledged the command.
	StageDispatch = "dispatch"
	// StageDone ends when its result has been stored.
	StageDone = "done"
)

// Metrics are the controller's own metrics, registered. Labels are in the order of their values.
type Metrics struct {
	machines  *replaced
	capacity  *replaced
	budgets   *replaced
	agentCert *replaced

	// Operations counts finished operations by type and outcome (SUCCEEDED, FAILED, CANCELED).
	Operations *prometheus.CounterVec
	// OperationSeconds is the time from an operation's creation to its end, by type and outcome.
	OperationSeconds *prometheus.HistogramVec
	// CommandLatency is the time to a stage of a command, by kind and stage.
	CommandLatency *prometheus.HistogramVec
	// Sessions is the number of agents connected to this controller, by role.
	Sessions *prometheus.GaugeVec
	// SessionsPaced counts agents that asked for a session and had to come again, since too many did at once.
	SessionsPaced prometheus.Counter
	// EventLag is the age of agents' events when they are stored, by the agent's clock.
	EventLag prometheus.Histogram
	// OperationsRescued counts jobs that were taken over from controllers that are gone.
	OperationsRescued prometheus.Counter
	// OperationsUnwakeable is the number of active operations that nothing would ever wake; anything but 0 is a bug.
	OperationsUnwakeable prometheus.Gauge
	// OperationsStuck is the number of active operations whose step runs far longer than its kind does.
	OperationsStuck prometheus.Gauge
	// Rollouts is the number of rollouts that have not ended, by state.
	Rollouts *prometheus.GaugeVec
	// FleetFrozen is 1 while no command is granted anywhere.
	FleetFrozen prometheus.Gauge
	// WebhookBacklog is the number of deliveries that wait, WebhookOldest the age of the oldest in seconds.
	WebhookBacklog, WebhookOldest prometheus.Gauge
	// BuildInfo is 1, by version and controller.
	BuildInfo *prometheus.GaugeVec
	// CertificateExpires is when a certificate of the CA ends, in Unix seconds, by certificate.
	CertificateExpires *prometheus.GaugeVec
	// ServerCertificateExpires is when the certificate of a listener ends, in Unix seconds, by listener.
	ServerCertificateExpires *prometheus.GaugeVec
	// BudgetWaiting is the number of operations that wait for room in a budget.
	BudgetWaiting prometheus.Gauge
	// ImageSpace is what the image directory's file system has, in bytes, by kind (free, size).
	ImageSpace *prometheus.GaugeVec
	// WebhookDeliveries counts tries of webhook deliveries by outcome (delivered, retried, dead).
	WebhookDeliveries *prometheus.CounterVec
	// CallsRefused counts calls of clients that were not let in, by client (the name of its bearer token) and why.
	CallsRefused *prometheus.CounterVec
	// ConnectionsClosed counts connections that were closed before their caller was known, by listener and why.
	ConnectionsClosed *prometheus.CounterVec
	// CallWait is how long calls of clients waited for their turn.
	CallWait prometheus.Histogram
	// CallsRunning and CallsWaiting are calls of clients, without streams, as they stood when one was let in last.
	CallsRunning, CallsWaiting prometheus.Gauge
	// CursorLag is how far the end of the reconcile cursor lies behind now.
	CursorLag prometheus.Gauge
	// RPCSeconds is the duration of calls, by full method and code.
	RPCSeconds *prometheus.HistogramVec
}

var (
	slowBuckets = []float64{.01, .05, .1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200}
	fastBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
)

const (
	helpPaced = "Agents that asked for a session and were told to try again later (ADMISSION_PACED). After a " +
		"controller's death it grows until all are back. Longer growth says that agents.admission.rate is too low."
	helpStuck = "Active operations whose step runs more than three times as long as 95% of its kind do, with " +
		"nothing automatic due. Counted every 30 s over the whole fleet by every controller: take the maximum."
	helpClosed = "Connections closed before their caller was known: full (as many are open, or wait, as may be), " +
		"crowded (for a newer one, after the longest time without progress, or new at a full queue), late, " +
		"left (by its other end, before it had sent anything), handshake (it failed), " +
		"refused (100 calls without a known token), caller (an agent has too many). " +
		"Many of crowded are a flood or a returning fleet."
	helpRefused = "Refused calls of clients: read_rate, write_rate, streams, all_streams, client_queue, queue, wait. " +
		"client is the name of a bearer token."
	helpLatency = "Time from the decision for a command until the executor has acknowledged it (stage dispatch) or its " +
		"result is stored (stage done)."
)

// NewRegistry makes a registry with the metrics of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// New makes the metrics and registers them. It panics if they are registered there already.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		machines:  &replaced{descs: []*prometheus.Desc{machinesDesc, machinesTotalDesc}},
		capacity:  &replaced{descs: []*prometheus.Desc{capacityDesc}},
		budgets:   &replaced{descs: []*prometheus.Desc{budgetsDesc}},
		agentCert: &replaced{descs: []*prometheus.Desc{agentCertDesc}},
		Operations: counterVec(
			"operations_total",
			"Finished operations; outcome is SUCCEEDED, FAILED or CANCELED. Counted by the controller that ended them.",
			"type",
			"outcome",
		),
		OperationSeconds: histogramVec(
			"operation_seconds",
			"Time from the creation of an operation to its end.",
			slowBuckets,
			"type",
			"outcome",
		),
		CommandLatency: histogramVec(
			"command_latency_seconds", helpLatency, fastBuckets,
			"kind",
			"stage",
		),
		Sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "sessions", Help: "Agents connected to this controller: host, site, installer.",
		}, []string{"role"}),
		SessionsPaced: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "sessions_paced_total",
			Help: helpPaced,
		}),
		EventLag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "event_lag_seconds", Buckets: fastBuckets,
			Help: "Age of agents' events when they are stored. Both clocks count: a skewed agent shows here.",
		}),
		OperationsRescued: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "operations_rescued_total",
			Help: "Jobs of operations and other work that were taken over from controllers that are gone. Some after a " +
				"restart are normal.",
		}),
		OperationsUnwakeable: gauge(
			"operations_unwakeable",
			"Active operations that nothing would ever wake. Anything but 0 is a bug: alert on it.",
		),
		OperationsStuck: gauge(
			"operations_stuck", helpStuck),
		WebhookDeliveries: counterVec(
			"webhook_deliveries_total",
			"Tries of webhook deliveries: delivered, retried (failed, and tried again later), dead (given up).",
			"outcome",
		),
		CallsRefused: counterVec(
			"calls_refused_total", helpRefused, "client",
			"why",
		),
		ConnectionsClosed: counterVec("connections_closed_total", helpClosed, "listener", "why"),
		CallWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "call_wait_seconds", Buckets: fastBuckets,
			Help: "Time that calls of clients waited for their turn. Most wait for nothing and count as 0.",
		}),
		CallsRunning: gauge("calls_running", "Calls of clients under way, without streams, when the last one was admitted."),
		CallsWaiting: gauge("calls_waiting", "Calls of clients that waited for their turn when the last one was admitted."),
		CursorLag: gauge(
			"cursor_lag_seconds",
			"How far the end of the reconcile cursor lies behind now. It grows while a transaction stays open anywhere in "+
				"the database cluster.",
		),
		RPCSeconds: histogramVec(
			"rpc_seconds",
			"Duration of gRPC calls; streams count when they end.",
			fastBuckets,
			"method",
			"code",
		),
	}
	m.addGauges()
	r.MustRegister(m.collectors()...)
	return m
}

// addGauges makes the gauges that are counted every 30 s for alerts.
func (m *Metrics) addGauges() {
	m.Rollouts = gaugeVec("rollouts", "Rollouts that have not ended. Counted in the database: take the maximum over "+
		"controllers.", "state")
	m.FleetFrozen = gauge("fleet_frozen", "1 while the fleet is frozen: no command is granted anywhere.")
	m.WebhookBacklog = gauge("webhook_backlog", "Deliveries of webhooks that wait, of all webhooks. Counted in the "+
		"database: take the maximum over controllers.")
	m.WebhookOldest = gauge("webhook_oldest_seconds", "Age of the oldest delivery that waits; 0 where none does.")
	m.BuildInfo = gaugeVec("build_info", "1, with what runs.", "version", "controller_id")
	m.CertificateExpires = gaugeVec("certificate_expires_timestamp_seconds",
		"When a certificate of the CA ends: root, intermediate.", "certificate")
	m.ServerCertificateExpires = gaugeVec("server_certificate_expires_timestamp_seconds",
		"When the certificate of a listener ends: frontpage, which clients see, and fleet, which agents see. Those of the "+
			"own CA are renewed in time.", "listener")
	m.BudgetWaiting = gauge("budget_waiting_operations", "Operations that wait for room in a budget. Counted in the "+
		"database: take the maximum over controllers.")
	m.ImageSpace = gaugeVec("image_space_bytes", "What the file system of images_dir has, through which images "+
		"come in also where a bucket keeps them: free for unprivileged processes, and its size.", "kind")
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.machines, m.capacity, m.Operations, m.OperationSeconds, m.CommandLatency, m.Sessions, m.SessionsPaced, m.EventLag,
		m.OperationsRescued, m.OperationsUnwakeable, m.OperationsStuck, m.CursorLag, m.RPCSeconds,
		m.WebhookDeliveries, m.CallsRefused, m.ConnectionsClosed, m.CallWait, m.CallsRunning, m.CallsWaiting,
		m.Rollouts, m.FleetFrozen, m.WebhookBacklog, m.WebhookOldest, m.BuildInfo, m.CertificateExpires, m.ImageSpace,
		m.ServerCertificateExpires, m.agentCert, m.budgets, m.BudgetWaiting,
	}
}

// ObserveCall fits obs.CallLog.Observe.
func (m *Metrics) ObserveCall(method string, code codes.Code, took time.Duration) {
	m.RPCSeconds.WithLabelValues(method, code.String()).Observe(took.Seconds())
}

const namespace = "ingot"

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

// MachineCount is the number of machines that have these five things in common.
type MachineCount struct {
	Phase, EffectiveState, NodeState, Region, Site string
	Count                                          int64
}

// SetMachines replaces all machine counts at once: a scrape sees the old ones or the new ones.
func (m *Metrics) SetMachines(counts []MachineCount) {
	out := make([]prometheus.Metric, 0, 2*len(counts))
	for _, n := range counts {
		for _, desc := range []*prometheus.Desc{machinesDesc, machinesTotalDesc} {
			out = append(out, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n.Count),
				n.Phase, n.EffectiveState, n.NodeState, n.Region, n.Site))
		}
	}
	m.machines.set(out)
}

var (
	machineLabels = []string{"phase", "effective_state", "node_state", "region", "site"}
	machinesDesc  = prometheus.NewDesc(namespace+"_machines",
		"Machines. Counted in the database every 30 s, so every controller shows the whole fleet: take the maximum over "+
			"controllers, not the sum.", machineLabels, nil)
	machinesTotalDesc = prometheus.NewDesc(namespace+"_machines_total",
		"The same by its older name, which is that of a counter.", machineLabels, nil)
)

// Capacity is how much of something a segment of a site has, and how much of that is in use.
type Capacity struct {
	Site, Segment, Resource string
	Used, Size              int64
}

// SetCapacity replaces all capacities at once. A resource without a size has no ratio and is left out.
func (m *Metrics) SetCapacity(all []Capacity) {
	out := make([]prometheus.Metric, 0, len(all))
	for _, c := range all {
		if c.Size > 0 {
			out = append(out, prometheus.MustNewConstMetric(capacityDesc, prometheus.GaugeValue, float64(c.Used)/float64(c.Size),
				c.Site, c.Segment, c.Resource))
		}
	}
	m.capacity.set(out)
}

var capacityDesc = prometheus.NewDesc(namespace+"_site_capacity_used_ratio",
	"Used part, from 0 to 1, of what a site's segment has: addresses of its DHCP pool, as its agent reports them. "+
		"Counted every 30 s. Segments with another DHCP server are left out.",
	[]string{"site", "segment", "resource"}, nil)

// BudgetUse is how much of a budget's limit is taken, from 0 to 1, where most of it is.
type BudgetUse struct {
	Budget, Limit string
	Ratio         float64
}

// SetBudgets replaces the use of all budgets at once.
func (m *Metrics) SetBudgets(all []BudgetUse) {
	out := make([]prometheus.Metric, 0, len(all))
	for _, b := range all {
		out = append(out, prometheus.MustNewConstMetric(budgetsDesc, prometheus.GaugeValue, b.Ratio, b.Budget, b.Limit))
	}
	m.budgets.set(out)
}

var budgetsDesc = prometheus.NewDesc(namespace+"_budget_used_ratio",
	"Used part, from 0 to 1, of a limit of a budget: at_once, percent, per_hour, per_day. Of a budget that counts sites "+
		"or labels apart, the one where most is used. Counted in the database: take the maximum over controllers.",
	[]string{"budget", "limit"}, nil)

// SetAgentCertificate sets when the first certificate ends of those that agents are connected with; the zero time where
// none is.
func (m *Metrics) SetAgentCertificate(ends time.Time) {
	if ends.IsZero() {
		m.agentCert.set(nil)
		return
	}
	m.agentCert.set([]prometheus.Metric{
		prometheus.MustNewConstMetric(agentCertDesc, prometheus.GaugeValue, float64(ends.Unix())),
	})
}

var agentCertDesc = prometheus.NewDesc(namespace+"_agent_certificate_expires_timestamp_seconds",
	"When the first certificate ends of the agents connected to this controller: take the minimum. Agents renew at two "+
		"thirds of the lifetime. Absent while no agent is connected.", nil, nil)

// replaced is a collector of gauges that are replaced all at once. A scrape could see a GaugeVec while it is emptied
// and filled.
type replaced struct {
	descs   []*prometheus.Desc
	current atomic.Pointer[[]prometheus.Metric]
}

func (c *replaced) set(all []prometheus.Metric) { c.current.Store(&all) }

func (c *replaced) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *replaced) Collect(ch chan<- prometheus.Metric) {
	if current := c.current.Load(); current != nil {
		for _, m := range *current {
			ch <- m
		}
	}
}
