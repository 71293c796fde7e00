package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/measure"
)

// Rig is a controller process that is attacked, and everything that an attempt needs.
type Rig struct {
	T testing.TB
	// C is the controller, and a client with scope admin. Its agents and sites come with C.NewMachine and C.NewSite.
	C *harness.ControllerProcess
	// Machine is a registered machine without an agent.
	Machine string
}

// shortTimes let a short run see connections that are closed late.
const shortTimes = "\nstrangers: {first_byte: 2s, handshake: 3s, first_request: 4s}\n"

func newRig(t testing.TB, config string) *Rig {
	t.Helper()
	if !*long {
		config += shortTimes
	}
	r := &Rig{T: t, C: harness.NewControllerProcessWith(t, config)}
	if *program != "" {
		r.C.Use(*program)
	}
	r.C.Start("")
	r.Machine = r.C.Register(&baremetalv1.Machine{}).GetMachineId()
	return r
}

func (r *Rig) pid() int { return r.C.Process.Pid() }

// Many is how many of something an attempt takes.
func (r *Rig) Many(short, full int) int {
	if *long {
		return full
	}
	return short
}

// Addresses are the controller's listeners, without relays between.
func (r *Rig) Addresses() controller.Addresses { return r.C.Addresses() }

// Client is a client with a token of its own and a scope.
func (r *Rig) Client(name string, scope access.Scope) *harness.Client {
	r.T.Helper()
	secret, err := auth.AddToken(r.C.TokensFile(), name, scope)
	if err != nil {
		r.T.Fatal(err)
	}
	r.C.Process.Hangup()
	c := r.C.WithToken(secret)
	testkit.Eventually(r.T, time.Minute, func() bool {
		_, err := c.Machines().GetMachine(r.T.Context(), &baremetalv1.GetMachineRequest{MachineId: r.Machine})
		return !harness.HasReason(err, auth.ReasonBearerInvalid)
	}, "the controller does not take the new token")
	return c
}

// TLS trusts the controller's root.
func (r *Rig) TLS(protocols ...string) *tls.Config {
	r.T.Helper()
	root, err := os.ReadFile(r.C.CAFile())
	if err != nil {
		r.T.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		r.T.Fatal("the CA file holds no certificate")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, ServerName: "localhost", NextProtos: protocols}
}

// Dial connects from hostile address number n, one of 127.1.0.0/16 and up; no two of the first 4 million are the same.
func (r *Rig) Dial(ctx context.Context, n int, address string) (net.Conn, error) {
	from := net.IPv4(127, byte(1+n>>16), byte(n>>8), byte(n))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}
	return d.DialContext(ctx, "tcp", address)
}

// idle lets a client make ordinary calls for a moment, and returns the resident memory of the controller after that.
// The peak is counted from here.
func (r *Rig) idle(ctx context.Context) int64 {
	r.T.Helper()
	for range 100 {
		if err := callMachine(ctx, r.C.Conn(), r.Machine); err != nil {
			r.T.Fatalf("an ordinary call: %v", err)
		}
	}
	idle, err := measure.RSS(r.pid())
	if err == nil {
		err = measure.ResetPeak(r.pid())
	}
	if err != nil {
		r.T.Fatal(err)
	}
	return idle
}

func callMachine(ctx context.Context, conn *grpc.ClientConn, machine string) error {
	_, err := baremetalv1.NewMachineServiceClient(conn).GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: machine},
		grpc.WaitForReady(true))
	return err
}

// polite is a client that means well, in a process of its own: one that shared the attacker's would wait for the
// attacker.
type polite struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	output bytes.Buffer
}

// politeVariable has a politeTask in JSON in the environment of such a process.
const politeVariable = "INGOT_ATTACK_POLITE"

type politeTask struct{ Address, CAFile, Token, Machine string }

// politeResult is what it prints at the end.
type politeResult struct {
	Took  []time.Duration
	Error string
}

// behave calls the controller again and again until it is stopped: over one connection, and over a new one each time.
func (r *Rig) behave() *polite {
	r.T.Helper()
	p := &polite{cmd: exec.Command(os.Args[0])}
	task, err := json.Marshal(politeTask{r.Addresses().Frontpage, r.C.CAFile(), r.C.Token(), r.Machine})
	if err != nil {
		r.T.Fatal(err)
	}
	p.cmd.Env = append(os.Environ(), politeVariable+"="+string(task))
	p.cmd.Stdout, p.cmd.Stderr = &p.output, os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.T.Fatal(err)
	}
	return p
}

// bePolite is the whole life of that process. It ends when its standard input does.
func bePolite(text string) error {
	var t politeTask
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	task.Background("until it is stopped", func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	})
	dial := func() (*grpc.ClientConn, error) {
		return client.Dial(client.Target{Server: t.Address, Token: t.Token, CAFile: t.CAFile})
	}
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &politeCalls{}
	g, _ := task.New(ctx)
	g.Go("polite", func(ctx context.Context) error {
		c.repeat(ctx, 20*time.Millisecond, func(ctx context.Context) error { return callMachine(ctx, conn, t.Machine) })
		return nil
	})
	g.Go("polite newcomer", func(ctx context.Context) error {
		c.repeat(ctx, 100*time.Millisecond, func(ctx context.Context) error {
			fresh, err := dial()
			if err != nil {
				return err
			}
			defer fresh.Close()
			return callMachine(ctx, fresh, t.Machine)
		})
		return nil
	})
	_ = g.Wait() // its functions return none
	return json.NewEncoder(os.Stdout).Encode(politeResult{c.took, c.err})
}

type politeCalls struct {
	mu   sync.Mutex
	took []time.Duration
	err  string
}

// repeat makes calls, so much time apart, and keeps how long each took.
func (p *politeCalls) repeat(ctx context.Context, every time.Duration, call func(context.Context) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		began := time.Now()
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := call(once)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.took = append(p.took, time.Since(began))
		if err != nil && p.err == "" {
			p.err = fmt.Sprintf("call %d, after %v: %v", len(p.took), time.Since(began).Round(time.Millisecond), err)
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stop ends the calls, and returns their latencies and the first that failed.
func (p *polite) stop() (measure.Latency, error) {
	var result politeResult
	err := errors.Join(p.stdin.Close(), p.cmd.Wait())
	if err == nil {
		err = json.Unmarshal(p.output.Bytes(), &result)
	}
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	return measure.Percentiles(result.Took), err
}
