package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

	program, url            string
	usual                   bool
	front, fleet, enrolment *balancer.Balancer
}

// probeEvery is how often the balancers look at /readyz.
const probeEvery = 200 * time.Millisecond

// NewTrio starts them.
func NewTrio(t testing.TB) *Trio {
	t.Helper()
	return newTrio(t, &Trio{program: Build(t).Controller, url: testkit.Database(t)})
}

// NewUsualTrio starts three with the lease, the heartbeats and the pool of the default configuration.
func NewUsualTrio(t testing.TB) *Trio {
	t.Helper()
	return newTrio(t, &Trio{program: Build(t).Controller, url: testkit.Database(t), usual: true})
}

// NewTrioOn starts them on a database that runs elsewhere and is empty.
func NewTrioOn(t testing.TB, url string) *Trio {
	t.Helper()
	return newTrio(t, &Trio{program: Build(t).Controller, url: url})
}

// NewTrioOf starts three of a program, which may be of an older version, on an empty database: the schema is theirs.
func NewTrioOf(t testing.TB, program string) *Trio {
	t.Helper()
	return newTrio(t, &Trio{program: program, url: testkit.EmptyDatabase(t)})
}

func newTrio(t testing.TB, r *Trio) *Trio {
	t.Helper()
	r.t = t
	for _, b := range []**balancer.Balancer{&r.front, &r.fleet, &r.enrolment} {
		opened, err := balancer.Open(3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Close)
		*b = opened
	}
	r.start(r.front.Address(), r.fleet.Address(), r.enrolment.Address(), [3]string{})
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
	return r
}

// NewTrioBehind starts three on hosts of their own, with the usual ports, behind a load balancer that runs on another
// host.
func NewTrioBehind(t testing.TB, balancer string, hosts [3]string) *Trio {
	t.Helper()
	r := &Trio{t: t, program: Build(t).Controller, url: testkit.Database(t)}
	r.start(balancer+":50051", balancer+":50052", balancer+":50053", hosts)
	return r
}

func (r *Trio) start(front, fleet, enrolment string, hosts [3]string) {
	r.t.Helper()
	at := place{url: r.url, fleet: fleet, enrolment: enrolment, usual: r.usual}
	for _, at.host = range hosts {
		c := newControllerProcess(r.t, at)
		if len(r.Controllers) == 0 {
			at.images = c.images()
			r.Client = newClient(r.t, front, c.caFile, c.token)
		} else if err := r.Controllers[0].hand(c); err != nil {
			r.t.Fatal(err)
		}
		c.Use(r.program)
		c.Start("")
		r.Controllers = append(r.Controllers, c)
	}
}

// hand copies the keys and the tokens of this controller to another one.
func (c *ControllerProcess) hand(to *ControllerProcess) error {
	if err := copyKeys(filepath.Join(c.dir, "data"), filepath.Join(to.dir, "data")); err != nil {
		return err
	}
	tokens, err := os.ReadFile(c.TokensFile())
	if err != nil {
		return fmt.Errorf("copy tokens: %w", err)
	}
	return os.WriteFile(to.TokensFile(), tokens, 0o600)
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

// Restart stops a controller in peace and starts it again. It returns how long the stop has taken.
func (r *Trio) Restart(i int) time.Duration {
	r.t.Helper()
	begun := time.Now()
	r.Controllers[i].Process.Terminate()
	took := time.Since(begun)
	r.Controllers[i].Start("")
	return took
}

// Kill ends a controller as kill -9 does, and returns when.
func (r *Trio) Kill(i int) time.Time {
	r.t.Helper()
	at := time.Now()
	r.Controllers[i].Process.Kill()
	return at
}

// Database opens a connection to their database. It ends with the test.
func (r *Trio) Database() *pgx.Conn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	return conn
}

// SchemaVersion is that of their database.
func (r *Trio) SchemaVersion() (version int) {
	r.t.Helper()
	const query = "SELECT coalesce(max(version), 0) FROM schema_version"
	if err := r.Database().QueryRow(context.Background(), query).Scan(&version); err != nil {
		r.t.Fatal(err)
	}
	return version
}
