package harness

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/balancer"
)

// Trio is three controllers on one database, as processes of their own, behind load balancers that look at /readyz.
type Trio struct {
	*Client
	t           testing.TB
	Controllers []*ControllerProcess

	front, fleet, enrolment *balancer.Balancer
}

// probeEvery is how often the balancers look at /readyz.
const probeEvery = 200 * time.Millisecond

// NewTrio starts them.
func NewTrio(t testing.TB) *Trio {
	t.Helper()
	r := &Trio{t: t}
	for _, b := range []**balancer.Balancer{&r.front, &r.fleet, &r.enrolment} {
		opened, err := balancer.Open(3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Close)
		*b = opened
	}
	first := newControllerProcess(t, testkit.Database(t), r.fleet.Address(), r.enrolment.Address(), "")
	r.Controllers = []*ControllerProcess{first}
	r.Client = newClient(t, r.front.Address(), first.caFile, first.token)
	first.Start("")
	for range 2 {
		r.Controllers = append(r.Controllers, r.another(first))
	}
	for i, c := range r.Controllers {
		stop := make(chan struct{})
		ended := make(chan struct{})
		task.Background("probe controller", func() {
			defer close(ended)
			r.probe(i, c, stop)
		})
		t.Cleanup(func() {
			close(stop)
			<-ended
		})
	}
	testkit.Eventually(t, time.Minute, func() bool { return r.up() == 3 }, "the balancers do not see three controllers")
	return r
}

// another prepares and starts a controller with the keys and the tokens of the first.
func (r *Trio) another(first *ControllerProcess) *ControllerProcess {
	r.t.Helper()
	c := newControllerProcess(r.t, first.url, r.fleet.Address(), r.enrolment.Address(), first.images())
	if err := copyKeys(filepath.Join(first.dir, "data"), filepath.Join(c.dir, "data")); err != nil {
		r.t.Fatal(err)
	}
	tokens, err := os.ReadFile(first.TokensFile())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(c.TokensFile(), tokens, 0o600); err != nil {
		r.t.Fatal(err)
	}
	c.Start("")
	return c
}

// probe keeps the balancers' word on one controller, which may be another process each time.
func (r *Trio) probe(i int, c *ControllerProcess, stop <-chan struct{}) {
	for {
		a, ready := c.look()
		r.front.Set(i, a.Frontpage, ready)
		r.fleet.Set(i, a.Fleet, ready)
		r.enrolment.Set(i, a.Enrolment, ready)
		select {
		case <-stop:
			return
		case <-time.After(probeEvery):
		}
	}
}

// look reads where a controller listens and whether it is ready.
func (c *ControllerProcess) look() (a controller.Addresses, ready bool) {
	b, err := os.ReadFile(c.addressesFile())
	if err != nil || json.Unmarshal(bytes.TrimSpace(b), &a) != nil {
		return controller.Addresses{}, false
	}
	ready, _ = readiness("http://" + a.HTTP)
	return a, ready
}

func (r *Trio) up() int {
	n := 0
	for _, c := range r.Controllers {
		if _, ready := c.look(); ready {
			n++
		}
	}
	return n
}

// Restart stops a controller in peace and starts it again. It gives how long the stop has taken.
func (r *Trio) Restart(i int) time.Duration {
	r.t.Helper()
	begun := time.Now()
	r.Controllers[i].Process.Terminate()
	took := time.Since(begun)
	r.Controllers[i].Start("")
	return took
}

// Kill ends a controller as kill -9 does, and gives when.
func (r *Trio) Kill(i int) time.Time {
	r.t.Helper()
	at := time.Now()
	r.Controllers[i].Process.Kill()
	return at
}
