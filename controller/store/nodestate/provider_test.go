package nodestate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// driven is a machine of MAAS in service.
type driven struct {
	*testing.T
	s  *store.Store
	at time.Time
}

func newDriven(t *testing.T) driven {
	t.Helper()
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	replica(t, s, `UPDATE machines SET spec = '{"provider": "maas", "site": "lab"}', node_state = 'active'`)
	return driven{t, s, storetest.Now()}
}

// observation is what the site's agent reports of a healthy machine.
func (d driven) observation(status maasstatus.Status, system, heldBy string) *fleetv1.ProviderObservation {
	row, _ := maasstatus.Of(status)
	return &fleetv1.ProviderObservation{MachineId: "m-1", Provider: "maas", Reachable: true, Present: true,
		Status: int32(status), StatusName: row.Name, SystemId: system, HeldBy: heldBy, SeenAt: timestamppb.New(d.at),
		PowerState: "on", Deployed: "ubuntu/jammy"}
}

func (d driven) record(site string, o *fleetv1.ProviderObservation, now time.Time) {
	d.Helper()
	must(d.T, d.s.DB.InTx(d.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		return nodestate.RecordProvider(d.Context(), q, site, o, now)
	}))
}

func (d driven) reports(status maasstatus.Status, system, heldBy string) {
	d.Helper()
	d.record("lab", d.observation(status, system, heldBy), d.at)
}

func (d driven) setAside(at time.Time) {
	d.Helper()
	must(d.T, d.s.DB.InTx(d.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		return nodestate.SetAside(d.Context(), q, "m-1", at)
	}))
}

func (d driven) adopt() (mark string) {
	d.Helper()
	inTx(d.T, d.s, "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) (err error) {
		mark, err = nodestate.AdoptDrift(d.Context(), q, m, d.at)
		return err
	})
	return mark
}

// shows holds the drift that the machine shows, and the stored one of the last observation.
func (d driven) shows(when, drift, stored string) {
	d.Helper()
	c := storetest.Condition(storetest.Machine(d.T, d.s, "m-1"), fleet.ProviderDrift)
	if (c == nil) != (drift == "") || !strings.HasPrefix(c.GetMessage(), drift) {
		d.Errorf("%s: the machine shows %v, want %q", when, c, drift)
	}
	row := d.row()
	if row.Drift != stored {
		d.Errorf("%s: stored is the drift %q, want %q", when, row.Drift, stored)
	}
	if c != nil && row.State != string(maasstatus.StateUnknown) && c.GetReason() != "Unexpected"+row.State {
		d.Errorf("%s: the reason is %s, and the state %s", when, c.GetReason(), row.State)
	}
}

func (d driven) row() dbsqlc.ProviderObservation {
	d.Helper()
	row, err := d.s.DB.Q.GetProviderObservation(d.Context(), "m-1")
	must(d.T, err)
	return row
}

func (d driven) accepted() string {
	d.Helper()
	m, err := d.s.DB.Q.GetMachine(d.Context(), "m-1")
	must(d.T, err)
	return m.AcceptedDrift
}

const (
	ready = "the provider says Ready, and the node is "
	ours  = "the machine at the provider is not ours: "
)

// Every field of an observation is stored, and the machine's first system id is the known one.
func TestObservationsOfProvidersAreStored(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	o := d.observation(maasstatus.Deployed, "abc", "it is eve's")
	o.Reason, o.Message, o.StatusMessage = "A_REASON", "a message", "not this"
	d.record("lab", o, d.at)
	want := dbsqlc.ProviderObservation{MachineID: "m-1", Provider: "maas", State: "Deployed", Status: "Deployed",
		SystemID: "abc", PowerState: "on", Deployed: "ubuntu/jammy", Drift: ours + "it is eve's", Reason: "A_REASON",
		Message: "a message", KnownSystemID: "abc", HeldBy: "it is eve's"}
	same := func(when string) {
		t.Helper()
		got := d.row()
		if got.ChangedAt.IsZero() {
			t.Errorf("%s: it has no time", when)
		}
		got.ChangedAt = time.Time{}
		if got != want {
			t.Errorf("%s: stored is %+v, want %+v", when, got, want)
		}
	}
	same("whole")
	o = d.observation(maasstatus.Ready, "xyz", "")
	o.PowerState, o.Deployed, o.StatusMessage = "off", "", "released"
	d.record("lab", o, d.at.Add(time.Second))
	want.State, want.Status, want.SystemID, want.PowerState, want.Deployed = "Ready", "Ready", "xyz", "off", ""
	want.Drift, want.HeldBy = "the provider has the machine as xyz, and it was abc", ""
	want.Reason, want.Message = "", "released"
	same("another one")
	o.Present = false
	d.record("lab", o, d.at.Add(2*time.Second))
	want.State, want.PowerState = "Absent", "unknown"
	same("gone")
	if got, err := nodestate.ObservedProviderState(t.Context(), d.s.DB.Q, dbsqlc.Machine{MachineID: "m-1",
		Provider: "maas", PowerState: "on"}); err != nil || got != "Absent" {
		t.Errorf("a workflow shows %q, %v", got, err)
	}
	for _, m := range []dbsqlc.Machine{{MachineID: "m-none", Provider: "maas", PowerState: "on"},
		{MachineID: "m-1", Provider: "agent", PowerState: "on"}} {
		want := map[string]string{"maas": "", "agent": "on"}[m.Provider]
		if got, err := nodestate.ObservedProviderState(t.Context(), d.s.DB.Q, m); err != nil || got != want {
			t.Errorf("of provider %s a workflow shows %q, %v", m.Provider, got, err)
		}
	}
}

// An observation of a machine that has gone, or has moved since the provider was asked, is dropped.
func TestObservationsOfMachinesThatHaveGone(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	before := storetest.Everything(t, d.s, "provider_observations", "machines", "machine_conditions")
	for name, change := range map[string]func(o *fleetv1.ProviderObservation) (site string){
		"another site's":     func(*fleetv1.ProviderObservation) string { return "west" },
		"another provider's": func(o *fleetv1.ProviderObservation) string { o.Provider = "ironic"; return "lab" },
		"of no machine":      func(o *fleetv1.ProviderObservation) string { o.MachineId = "m-none"; return "lab" },
	} {
		o := d.observation(maasstatus.Ready, "abc", "")
		d.record(change(o), o, d.at)
		if after := storetest.Everything(t, d.s, "provider_observations", "machines", "machine_conditions"); after != before {
			t.Errorf("%s: something has changed", name)
		}
	}
	replica(t, d.s, "UPDATE machines SET deleted_at = now()")
	d.reports(maasstatus.Ready, "abc", "")
	if n := storetest.Count(t, d.s, "SELECT count(*) FROM provider_observations"); n != 0 {
		t.Error("that of a deleted machine is stored")
	}
}

// What a provider shows is compared with the node's state and the known system, until an operator accepts it; and it is
// accepted only as long as it stays.
func TestDriftUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	if err := d.s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		_, err := nodestate.AdoptDrift(t.Context(), q, dbsqlc.Machine{MachineID: "m-1"}, d.at)
		return err
	}); err != nil {
		storetest.WantReason(t, err, "NODE_GUARD_FAILED")
	} else {
		t.Error("what was never seen is accepted")
	}
	d.reports(maasstatus.Deployed, "abc", "")
	d.shows("as it should be", "", "")
	d.reports(maasstatus.Ready, "abc", "")
	d.shows("released", ready+"active", d.row().Drift)
	if d.row().Drift == "" {
		t.Error("the drift is not stored")
	}
	o := d.observation(maasstatus.Ready, "abc", "")
	o.Reachable = false
	d.record("lab", o, d.at)
	d.shows("not asked", ready, "") // what was known is no less true
	d.reports(maasstatus.Deployed, "abc", "")
	d.shows("as it should be again", "", "")

	const moved = "the provider has the machine as xyz, and it was abc"
	d.reports(maasstatus.Deployed, "xyz", "")
	d.shows("another system", moved, moved)
	if mark := d.adopt(); mark != "Deployed/xyz" || d.accepted() != mark || d.row().KnownSystemID != "xyz" {
		t.Errorf("accepted is %q, stored %q, known %q", mark, d.accepted(), d.row().KnownSystemID)
	}
	d.shows("accepted", "", "")
	d.reports(maasstatus.Deployed, "xyz", "")
	d.shows("as it was accepted", "", "")
	if d.accepted() == "" {
		t.Error("the same observation ends what was accepted")
	}
	d.reports(maasstatus.Deployed, "xyz", "it is eve's")
	d.shows("another client's", ours+"it is eve's", ours+"it is eve's")
	if d.accepted() != "" {
		t.Errorf("accepted is still %q", d.accepted())
	}
	if mark := d.adopt(); mark != "Deployed/xyz/it is eve's" {
		t.Errorf("accepted is %q", mark)
	}
	d.reports(maasstatus.Deployed, "xyz", "it is eve's")
	d.shows("another client's, accepted", "", "")
	o = d.observation(maasstatus.Ready, "xyz", "")
	o.Reachable = false
	d.record("lab", o, d.at)
	if d.accepted() == "" {
		t.Error("what was not asked ends what was accepted")
	}
	d.reports(maasstatus.Deployed, "xyz", "it is bob's")
	d.shows("yet another client's", ours+"it is bob's", ours+"it is bob's")
}

// What was seen before the machine's last work ended is stored and not judged, for as long as clocks may differ.
func TestWhatWasSeenBeforeTheEndOfWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen, now time.Duration // after the end of the work
		judged    bool
	}{
		"before it":                  {-time.Second, time.Second, false},
		"as it ended":                {0, time.Second, false},
		"after it":                   {time.Microsecond, time.Second, true},
		"before it, and told late":   {-time.Second, 5*time.Minute - time.Microsecond, false},
		"long before, or by a clock": {-time.Second, 5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriven(t)
			d.setAside(d.at) // nothing was seen yet
			d.reports(maasstatus.Ready, "abc", "")
			d.setAside(d.at)
			d.shows("set aside", "", "")
			o := d.observation(maasstatus.Ready, "abc", "")
			o.SeenAt, o.Deployed = timestamppb.New(d.at.Add(c.seen)), "anew"
			d.record("lab", o, d.at.Add(c.now))
			drift := map[bool]string{true: ready + "active"}[c.judged]
			d.shows("said", drift, d.row().Drift)
			if row := d.row(); (row.Drift != "") != c.judged || row.Deployed != "anew" || (row.SetAsideAt == nil) != c.judged {
				t.Errorf("stored is %+v", row)
			}
		})
	}
}

// A node's move compares what was seen with the new state, unless work has made it, after which the provider is asked
// anew.
func TestDriftFollowsTheNode(t *testing.T) {
	t.Parallel()
	const active = ready + "active"
	for name, c := range map[string]struct {
		status  maasstatus.Status
		prepare string
		ended   string
		before  string // the drift of the active node
		after   string // that of the node that moved
	}{
		"fits neither": {status: maasstatus.Ready, before: active},
		"fits both":    {status: maasstatus.Deployed},
		"by work":      {status: maasstatus.Ready, ended: "op-1", before: active},
		"set aside": {maasstatus.Ready, "UPDATE provider_observations SET set_aside_at = now(), drift = 'x'", "", active,
			active},
		"of another provider": {maasstatus.Ready, `UPDATE machines SET spec = '{"provider": "agent"}'`, "", active, active},
		"not known":           {maasstatus.Ready, "UPDATE provider_observations SET state = 'Unknown'", "", active, active},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriven(t)
			d.reports(c.status, "abc", "")
			if c.prepare != "" {
				replica(t, d.s, c.prepare)
			}
			is := func(when, want string) {
				t.Helper()
				got := storetest.Condition(storetest.Machine(t, d.s, "m-1"), fleet.ProviderDrift)
				if (got == nil) != (want == "") || got.GetMessage() != want {
					t.Errorf("%s: the machine shows %v, want %q", when, got, want)
				}
			}
			is("active", c.before)
			inTx(t, d.s, "m-1", func(q *dbsqlc.Queries, _ dbsqlc.Machine) error {
				return nodestate.MoveTo(t.Context(), q, "m-1", nodestate.Move{To: node.Quarantined, By: node.System,
					Ended: c.ended}, d.at)
			})
			is("quarantined", c.after)
			if aside := d.row().SetAsideAt != nil; aside != (c.ended != "" || name == "set aside") {
				t.Errorf("set aside: %t", aside)
			}
			if name == "fits neither" || name == "by work" {
				if row := d.row(); row.Drift != "" {
					t.Errorf("stored is the drift %q", row.Drift)
				}
			}
		})
	}
	// The other way round: what fitted does not fit any more.
	d := newDriven(t)
	replica(t, d.s, "UPDATE machines SET node_state = 'quarantined', quarantined_from = 'active'")
	d.reports(maasstatus.Ready, "abc", "")
	d.shows("quarantined", "", "")
	inTx(t, d.s, "m-1", func(q *dbsqlc.Queries, _ dbsqlc.Machine) error {
		return nodestate.MoveNode(t.Context(), q, "m-1", node.Active, node.System, "", "", nil, d.at)
	})
	d.shows("active", active, active)
}

// An error of the provider needs a person until the provider shows another state. What it does not show changes
// nothing.
func TestErrorsOfProviders(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	needs := func(when, message string) {
		t.Helper()
		c := storetest.Condition(storetest.Machine(t, d.s, "m-1"), fleet.NeedsIntervention)
		if (c == nil) != (message == "") || c != nil && (c.GetReason() != "MAAS_FAILED" ||
			!strings.Contains(c.GetMessage(), message)) {
			t.Errorf("%s: it needs %v, want %q", when, c, message)
		}
	}
	d.reports(maasstatus.Deployed, "abc", "")
	needs("deployed", "")
	d.reports(maasstatus.Broken, "abc", "")
	needs("broken", "Broken")
	o := d.observation(maasstatus.Broken, "abc", "")
	o.StatusMessage = "the fan is gone"
	d.record("lab", o, d.at)
	needs("broken, with a message", "the fan is gone")
	silent := proto.CloneOf(d.observation(maasstatus.Deployed, "abc", ""))
	silent.Reachable = false
	d.record("lab", silent, d.at)
	needs("not asked", "the fan is gone")
	d.setAside(d.at)
	d.reports(maasstatus.Deployed, "abc", "") // not judged, and no error
	needs("deployed again", "")
}

// A stage is judged by what was seen last of the provider, and by whether the machine's region is known.
func TestWhatAStageKnowsOfTheProvider(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	facts := func(m dbsqlc.Machine) (f workflow.StageFacts) {
		t.Helper()
		must(t, nodestate.ProviderFacts(t.Context(), d.s.DB.Q, m, &f))
		return f
	}
	replica(t, d.s, `INSERT INTO maas_regions (region_ref, endpoint, sealed, ca_pem, user_data, retain_machines,
		updated_at) SELECT unnest('{default,west}'::text[]), '', '', '', '', false, now()`)
	for provider, regions := range map[string]map[string]bool{
		"maas":  {"": true, "west": true, "east": false},
		"agent": {"": true, "east": true},
	} {
		for region, known := range regions {
			f := facts(dbsqlc.Machine{MachineID: "m-1", Provider: provider,
				Spec: fmt.Appendf(nil, `{"provider_ref": %q}`, region)})
			if f.Provider != provider || f.RegionKnown != known || f.ProviderState != "" {
				t.Errorf("%s in %q: %+v", provider, region, f)
			}
		}
	}
	d.reports(maasstatus.Ready, "abc", "it is eve's")
	m, err := d.s.DB.Q.GetMachine(t.Context(), "m-1")
	must(t, err)
	if f := facts(
		m,
	); f.ProviderState != maasstatus.StateReady || f.ProviderPower != "on" ||
		f.ProviderHeldBy != "it is eve's" {
		t.Errorf("seen: %+v", f)
	}
	m.Provider = "agent"
	if f := facts(m); f.ProviderState != "" || f.ProviderPower != "" || f.ProviderHeldBy != "" {
		t.Errorf("of another provider: %+v", f)
	}
}
