package console

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/measure"
)

// rest is a client of REST.
type rest struct {
	client      http.Client
	base, token string
}

func newREST(r *rig.Rig) (*rest, error) {
	transport, err := r.Controllers[0].Transport()
	return &rest{http.Client{Transport: transport}, "https://" + r.Controllers[0].REST, r.Token}, err
}

// get opens an answer.
func (c *rest) get(ctx context.Context, path string, q url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	answer, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return nil, errors.Join(fmt.Errorf("%s: %s: %s", path, answer.Status, text), answer.Body.Close())
	}
	return answer, nil
}

// median returns the median of some runs in milliseconds, after one that is not counted.
func median(run func() error) (float64, error) {
	l, err := measure.Times(11, 1, func(int) error { return run() })
	return l.P50, err
}

// mapped is the plain SQL that reads what a map is made of.
const mapped = `
	SELECT m.machine_id, m.site, m.spec ->> 'rack', m.phase, m.node_state, m.current_operation_id IS NOT NULL,
	       m.active_workflow_id IS NOT NULL, m.unresolved_command_id IS NOT NULL, c.types
	FROM machines m LEFT JOIN (
	    SELECT machine_id, array_agg(type) AS types FROM machine_conditions
	    WHERE status AND type IN ('RMA', 'Retired', 'NeedsIntervention', 'Provisioned', 'Reachable') GROUP BY machine_id) c
	    ON c.machine_id = m.machine_id
	WHERE m.deleted_at IS NULL`

// then is the same of a moment.
const then = `
	SELECT m.machine_id, w.spec ->> 'site', w.spec ->> 'rack', s.phase, s.node_state, s.current_operation_id IS NOT NULL,
	       s.active_workflow_id IS NOT NULL, s.unresolved_command_id IS NOT NULL, s.condition_types, s.condition_statuses
	FROM machines m
	CROSS JOIN LATERAL (SELECT * FROM machine_states x WHERE x.machine_id = m.machine_id AND x.at <= $1
	                    ORDER BY x.at DESC, x.version DESC LIMIT 1) s
	CROSS JOIN LATERAL (SELECT * FROM machine_words y WHERE y.machine_id = s.machine_id AND y.digest = s.said LIMIT 1) w
	WHERE s.deleted_at IS NULL`

// plain times a statement of which every row is read and none looked at.
func (b *bench) plain(ctx context.Context, sql string, args ...any) (float64, error) {
	return median(func() error {
		rows, err := b.Admin.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		n := 0
		for rows.Next() {
			n++
		}
		if rows.Err() == nil && n == 0 {
			return errors.New("the plain SQL has no rows")
		}
		return rows.Err()
	})
}

func (b *bench) calls(ctx context.Context) error {
	var now time.Time
	if err := b.Admin.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	bare, err := b.plain(ctx, mapped)
	if err != nil {
		return err
	}
	past, err := b.plain(ctx, then, now)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what string
		q    *pb.MapMachinesRequest
		bare float64
	}{
		{"MapMachines by site and rack", &pb.MapMachinesRequest{GroupBy: []string{"site", "rack"}}, bare},
		{"MapMachines by site and rack, with a label", &pb.MapMachinesRequest{GroupBy: []string{"site", "rack"},
			ValueOf: "labels.team"}, bare},
		{"MapMachines without groups", &pb.MapMachinesRequest{}, bare},
		{"MapMachines of a moment", &pb.MapMachinesRequest{GroupBy: []string{"site", "rack"}, AsOf: timestamppb.New(now)},
			past},
	} {
		took, err := median(func() error {
			m, err := pb.NewMachineServiceClient(b.Conn).MapMachines(ctx, c.q)
			if err == nil && int(m.GetTotal()) != b.o.machines {
				err = fmt.Errorf("%d machines of %d", m.GetTotal(), b.o.machines)
			}
			return err
		})
		if err != nil {
			return err
		}
		b.run.Add(c.what, took, "ms", nil, "%s", beside(took, c.bare, "the plain SQL"))
	}
	if err := b.searches(ctx); err != nil {
		return err
	}
	var bytes int64
	took, err := median(func() error {
		answer, err := b.rest.get(ctx, "/api/v1/machine-map", url.Values{"group_by": {"site", "rack"}})
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		bytes, err = io.Copy(io.Discard, answer.Body)
		return err
	})
	b.run.Add("the same over REST, as JSON", took, "ms", nil, "%s; %.1f MiB of JSON", beside(took, bare, "the plain SQL"),
		float64(bytes)/measure.MiB)
	return err
}

// scanned is the plain SQL that looks at every name.
const scanned = "SELECT machine_id FROM machine_names WHERE strpos(words, $1) > 0 LIMIT 500"

// serial returns the serial number of the n-th machine's inventory.
func serial(n int) string {
	sum := md5.Sum([]byte(fill.Machine(n)))
	return "SN" + hex.EncodeToString(sum[:])[:10]
}

// searches times the search: for a serial number, for a part of one machine's name, and for what all names hold.
func (b *bench) searches(ctx context.Context) error {
	last := b.o.machines - 1
	for _, c := range []struct{ what, text string }{
		{"search for a serial number", serial(last)},
		{"search for the end of a name", fill.Machine(last)[len(fill.Prefix):]},
		{"search for what every machine has", "fill"},
	} {
		bare, err := b.plain(ctx, scanned, strings.ToLower(c.text))
		if err != nil {
			return err
		}
		took, err := median(func() error {
			r, err := pb.NewMachineServiceClient(b.Conn).SearchMachines(ctx,
				&pb.SearchMachinesRequest{Text: c.text, Limit: searchHits})
			if err == nil && len(r.GetHits()) == 0 {
				err = fmt.Errorf("%q is not found", c.text)
			}
			return err
		})
		if err != nil {
			return err
		}
		b.run.Add(c.what, took, "ms", report.AtMost(300), "%s", beside(took, bare, "the plain SQL"))
	}
	return nil
}

// searchHits is how many hits the console asks for.
const searchHits = 8

// asked is what the first screen of a fleet in which nothing changes asks for again and again, beside its stream.
var asked = []struct {
	path  string
	query url.Values
	every time.Duration
}{
	{"/api/v1/fleet-summary", nil, 10 * time.Second},
	{"/api/v1/rollouts", url.Values{"page_size": {"50"}}, 15 * time.Second},
	{"/api/v1/server-info", nil, 8 * time.Second},
	{"/api/v1/machine-explanations", url.Values{"page_size": {"12"}, "filter": {"machine_id in (" +
		strings.Join(named(12), ", ") + ")"}}, 60 * time.Second},
}

func named(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fill.Machine(i))
	}
	return ids
}

// ask asks as the first screen does, from a moment of its own on.
func (b *bench) ask(ctx context.Context, path string, q url.Values, every time.Duration) error {
	for wait := rand.N(every); ; wait = every {
		if rig.Pause(ctx, wait) != nil {
			return nil
		}
		answer, err := b.rest.get(ctx, path, q)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			err = errors.Join(err, answer.Body.Close())
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// consoles opens many consoles' first screens, and sees what they cost the controller.
func (b *bench) consoles(ctx context.Context) error {
	m, err := pb.NewMachineServiceClient(b.Conn).MapMachines(ctx, &pb.MapMachinesRequest{Filter: "site=none"})
	if err != nil {
		return err
	}
	const span = 20 * time.Second
	idle, err := b.cores(ctx, span)
	if err != nil {
		return err
	}
	open, end := context.WithCancel(ctx)
	defer end()
	group, open := task.New(open)
	var lines atomic.Int64
	for range b.o.streams {
		answer, err := b.rest.get(open, "/api/v1/machine-events", url.Values{"cursor": {m.GetNextCursor()}})
		if err != nil {
			return err
		}
		group.Go("console", func(context.Context) error {
			defer answer.Body.Close()
			counting := &counter{lines: &lines}
			_, _ = io.Copy(counting, answer.Body) // until the end
			return nil
		})
		for _, a := range asked {
			group.Go("console's questions", func(ctx context.Context) error { return b.ask(ctx, a.path, a.query, a.every) })
		}
	}
	for _, rate := range []int{0, 10} {
		changes := b.change(ctx, rate)
		if err := rig.Pause(ctx, 5*time.Second); err != nil {
			return err
		}
		before := lines.Load()
		cores, err := b.cores(ctx, span)
		if err := errors.Join(err, changes.end()); err != nil {
			return err
		}
		var limit *report.Limit
		if rate == 0 {
			limit = report.AtMost(10)
		}
		b.run.Add(fmt.Sprintf("controller, %d open consoles, %d changes a second", b.o.streams, rate), 100*(cores-idle),
			"% of a core", limit, "%.0f messages a second; %.1f %% without them",
			float64(lines.Load()-before)/span.Seconds(), 100*idle)
	}
	end()
	return group.Wait()
}

// cores returns the processors that the controller keeps busy.
func (b *bench) cores(ctx context.Context, span time.Duration) (float64, error) {
	use, err := b.Used(ctx, func() error { return rig.Pause(ctx, span) })
	return use.Controllers / 1000 / max(use.Seconds, 1), err
}

// counter counts lines.
type counter struct{ lines *atomic.Int64 }

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			c.lines.Add(1)
		}
	}
	return len(p), nil
}
