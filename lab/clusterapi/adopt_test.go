//go:build clusterapi

package clusterapi

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

const (
	fleetSize = 50
	offered   = 6 // of them, as fleet-m0 and so on; the others belong to other users
)

// adoption is a fleet that was there before Cluster API: labels of a budget, a team and a rack, and other claims.
type adoption struct {
	*management
	pool map[string]*harness.Machine
	was  map[string]*baremetalv1.Machine
}

func (g *management) newAdoption() *adoption {
	g.t.Helper()
	a := &adoption{management: g, was: map[string]*baremetalv1.Machine{}}
	g.ingot("budget", "set", "power", "--domain", "label:power-domain", "--at-once", "2")
	a.pool = g.pool("fleet", offered, harness.MachineOptions{})
	for id := range a.pool {
		g.label(id, "power-domain", "pdu-0")
		g.label(id, "team", "payments")
		a.was[id] = g.c.Machine(id)
	}
	foreign := []map[string]string{
		{label.Offered: label.ClusterAPI, label.Owner: "payments"},
		{label.Offered: label.ClusterAPI, claim: "another"},
		{}, // matches the selector alone
	}
	for i := range fleetSize - offered {
		id := fmt.Sprintf("fleet-x%d", i)
		labels := map[string]string{"pool": "fleet", "power-domain": fmt.Sprint("pdu-", i%5), "rack": fmt.Sprint("r", i%7)}
		maps.Copy(labels, foreign[i%len(foreign)])
		a.was[id] = g.c.Register(&baremetalv1.Machine{MachineId: id, Labels: labels,
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Location: "cage 4"}})
	}
	return a
}

// lost reports what a machine had before and has no more. Those in used carry a claim besides.
func (a *adoption) lost(after string, used map[string]string) {
	a.t.Helper()
	for id, m := range a.was {
		want := maps.Clone(m.GetLabels())
		if held := used[id]; held != "" {
			want[claim] = held
		}
		is := a.c.Machine(id)
		if !maps.Equal(is.GetLabels(), want) || !proto.Equal(is.GetSpec(), m.GetSpec()) || is.GetDeletedAt() != nil ||
			is.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE {
			a.t.Errorf("after %s %s is %v, was %v", after, id, is, m)
		}
	}
}

// testAdoption: a fleet of 50 loses nothing by typing errors in each field, by replacements, and by a cluster's end.
func (g *management) testAdoption() {
	a := g.newAdoption()
	image := filepath.Join(g.t.TempDir(), "disk.raw")
	if err := os.WriteFile(image, rig.WholeDisk(2<<20), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.ingot("image", "add", "ubuntu-2204", image) // and so other names are none
	g.install()
	defer g.end(g.provider())
	g.cluster("fleet")
	a.mistyped()
	a.used()
}

// mistyped has an error in each field, one Machine each.
func (a *adoption) mistyped() {
	spec := func(key string, value any) func(m, infra, secret object) {
		return func(_, infra, _ object) { infra["spec"].(object)[key] = value }
	}
	secret := func(key, value string) func(m, infra, secret object) {
		return func(_, _, secret object) { secret["stringData"].(object)[key] = value }
	}
	wrong := map[string]func(m, infra, secret object){
		"selector":  spec("selector", "labels.pool==fleet"),
		"pool":      spec("selector", "labels.pool=fleat"),
		"image":     spec("image", "ubunut-2204"),
		"agentless": spec("agentless", true),
		"domain":    func(m, _, _ object) { m["spec"].(object)["failureDomain"] = "defualt" },
		"format":    secret("format", "cloudconfig"),
		"user-data": secret("value", "cloud-config\nruncmd: [true]\n"),
	}
	for name, change := range wrong {
		a.machine("fleet", "typed-"+name, change)
	}
	for name := range wrong {
		a.eventually("typed-"+name, "refused", func(o object) bool {
			reason, _ := condition(o, "Ready")["reason"].(string)
			// A refusal of Ingot's, or one of those words of the provider's that are about what was asked for.
			return reason == "NoFreeMachine" || reason == "BootstrapFormatUnsupported" ||
				reason != "" && strings.ToUpper(reason) == reason
		})
		a.t.Logf("%s: %v", name, condition(a.Admin.Get(infra("typed-"+name)), "Ready"))
	}
	for name := range wrong {
		a.deleted("typed-" + name)
	}
	for id, m := range a.pool {
		if n := effects(m, sim.KindRepave); n != 0 {
			a.t.Errorf("%s was installed %d times by typing errors", id, n)
		}
	}
	a.lost("typing errors", nil)
}

// used has three machines installed, one replaced, and all given back.
func (a *adoption) used() {
	kept := func(_, infra, _ object) { infra["spec"].(object)["erase"] = false }
	names := []string{"fleet-a", "fleet-b", "fleet-c"}
	for _, name := range names {
		a.machine("fleet", name, kept)
	}
	holds := func() map[string]string {
		out := map[string]string{}
		for _, name := range names {
			id := a.provisioned(name)
			if _, ours := a.pool[id]; !ours {
				a.t.Errorf("%s took %s, which is somebody else's", name, id)
			}
			out[id] = kubetest.Text(a.Admin.Get(infra(name)), "metadata", "uid")
		}
		if len(out) != len(names) {
			a.t.Errorf("%d Machines hold %d machines: %v", len(names), len(out), out)
		}
		return out
	}
	a.lost("three installations", holds())
	a.deleted("fleet-b")
	names[1] = "fleet-d"
	a.machine("fleet", "fleet-d", kept)
	a.lost("a replacement", holds())
	for _, name := range names {
		a.deleted(name)
	}
	a.lost("the end of the cluster", nil)
}
