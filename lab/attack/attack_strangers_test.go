package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/measure"
)

// strangerAttempts are those of anybody who reaches a port.
func strangerAttempts() []Attempt {
	return []Attempt{
		{Party: Stranger, Attempt: "connections that say nothing", Rule: 3, Run: silentConnections},
		{Party: Stranger, Attempt: "handshakes that are begun and never finished", Rule: 3, Run: halfOpen},
		{Party: Stranger, Attempt: "200 half-open connections a second at the port of agents", Rule: 3, Run: halfOpenFleet},
		{Party: Stranger, Attempt: "connections that shake hands and ask nothing", Rule: 3, Run: quietConnections},
		{Party: Stranger, Attempt: "headers that come a byte at a time", Rule: 3, Run: slowHeaders},
		{Party: Stranger, Attempt: "headers without end", Rule: 3, Run: hugeHeaders},
		{Party: Stranger, Attempt: "enrolments sent by half, many on each connection", Rule: 3, Run: halfEnrolments},
		{Party: Stranger, Attempt: "bodies by REST without a token", Rule: 3, Run: restBodies},
		{Party: Stranger, Attempt: "messages by gRPC without a token, sent by half", Rule: 3, Run: halfMessages},
		{Party: Stranger, Attempt: "health checks as fast as they go", Rule: 3, Run: healthFlood},
	}
}

// closeLimit is more than any bound in time of the default configuration.
const closeLimit = 75 * time.Second

func (r *Rig) tlsListeners() []string {
	at := r.Addresses()
	return []string{at.Frontpage, at.Fleet, at.Enrolment, at.REST}
}

// judge is the outcome of connections of which each must be closed.
func (c *crowd) judge(n int) (Outcome, error) {
	defer c.close()
	if open := c.left(closeLimit); open > 0 {
		return breached("%d of %d connections are open after %v", open, n, closeLimit), nil
	}
	return held("%d connections, all cut off", n), nil
}

func silentConnections(ctx context.Context, r *Rig) (Outcome, error) {
	n := r.Many(1000, 10_000)
	return r.gather(ctx, n, append(r.tlsListeners(), r.Addresses().HTTP),
		func(_ int, c net.Conn) (net.Conn, error) { return c, nil }).judge(n)
}

func halfOpen(ctx context.Context, r *Rig) (Outcome, error) {
	hello, err := clientHello(r.TLS("h2"))
	if err != nil {
		return Outcome{}, err
	}
	n := r.Many(1000, 10_000)
	return r.gather(ctx, n, r.tlsListeners(), func(_ int, c net.Conn) (net.Conn, error) {
		_, err := c.Write(hello)
		return c, err
	}).judge(n)
}

// halfOpenFleet floods the handshakes of agents from one address, while an agent connects again and again from another.
func halfOpenFleet(ctx context.Context, r *Rig) (Outcome, error) {
	m := r.C.NewMachine(r.T, harness.MachineOptions{})
	m.WaitConnected()
	creds, err := state.Dir(m.StateDir).Credentials()
	if err != nil {
		return Outcome{}, err
	}
	hello, err := clientHello(r.TLS("h2"))
	if err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var begun atomic.Int64
	g, _ := task.New(ctx)
	g.Go("half-open", func(ctx context.Context) error {
		tick := time.NewTicker(time.Second / 200)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			c, err := r.Dial(ctx, 1, r.Addresses().Fleet)
			if err != nil {
				continue
			}
			defer c.Close()
			if _, err := c.Write(hello); err == nil {
				begun.Add(1)
			}
		}
	})
	cfg := r.TLS("h2")
	cfg.Certificates = []tls.Certificate{creds.TLS()}
	var took []time.Duration
	for until := time.Now().Add(time.Duration(r.Many(8, 60)) * time.Second); time.Now().Before(until); {
		began := time.Now()
		if err := agentHandshake(ctx, r.Addresses().Fleet, cfg); err != nil {
			cancel()
			_ = g.Wait() // it returns none
			return breached("an agent cannot connect after %d half-open connections: %v", begun.Load(), err), nil
		}
		took = append(took, time.Since(began))
		hold(ctx, 50*time.Millisecond)
	}
	cancel()
	_ = g.Wait() // it returns none
	if p := measure.Percentiles(took); p.P99 > 1000 {
		return breached("an agent's handshake takes %.0f ms at the p99 beside %d half-open connections", p.P99, begun.Load()),
			nil
	}
	return held("%d half-open; %d handshakes of an agent meanwhile", begun.Load(), len(took)), nil
}

// agentHandshake connects, and waits for the first byte of HTTP/2: only then the controller has taken the certificate.
func agentHandshake(ctx context.Context, address string, cfg *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// quietConnections finish their handshakes. The port of agents is not among them, where no stranger can.
func quietConnections(ctx context.Context, r *Rig) (Outcome, error) {
	at := r.Addresses()
	n := r.Many(400, 10_000)
	cfg := r.TLS("h2")
	return r.gather(ctx, n, []string{at.Frontpage, at.Enrolment, at.REST}, func(_ int, c net.Conn) (net.Conn, error) {
		t := tls.Client(c, cfg)
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return nil, err
		}
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		// The preface of HTTP/2 and empty settings (RFC 9113, section 3.4).
		_, err := t.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		return t, err
	}).judge(n)
}

// slowHeaders sends the head of a request a byte a second.
func slowHeaders(ctx context.Context, r *Rig) (Outcome, error) {
	at := r.Addresses()
	n := r.Many(200, 2000)
	cfg := r.TLS("http/1.1")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := r.gather(ctx, n, []string{at.HTTP, at.REST}, func(i int, c net.Conn) (net.Conn, error) {
		if i%2 == 1 {
			t := tls.Client(c, cfg)
			if err := t.HandshakeContext(ctx); err != nil {
				return nil, err
			}
			c = t
		}
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
		return c, err
	})
	defer c.close()
	open := len(c.open)
	for until := time.Now().Add(closeLimit); open > 0; {
		if time.Now().After(until) {
			return breached("%d of %d connections are open after %v", open, n, closeLimit), nil
		}
		hold(ctx, time.Second)
		open = 0
		for _, conn := range c.open {
			if _, err := io.WriteString(conn, "a"); err == nil {
				open++
			}
		}
	}
	return held("%d connections, all cut off", n), nil
}

// hugeHeaders sends header fields for as long as the other side takes them.
func hugeHeaders(ctx context.Context, r *Rig) (Outcome, error) {
	at := r.Addresses()
	line := []byte("x-large: " + strings.Repeat("a", 4096) + "\r\n")
	cfg := r.TLS("http/1.1")
	var most atomic.Int64
	n := r.Many(100, 1000)
	c := r.gather(ctx, n, []string{at.HTTP, at.REST}, func(i int, c net.Conn) (net.Conn, error) {
		if i%2 == 1 {
			c = tls.Client(c, cfg)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return nil, err
		}
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
		sent := 0
		for ; err == nil && sent < 16<<20; sent += len(line) {
			_, err = c.Write(line)
		}
		for m := most.Load(); int64(sent) > m && !most.CompareAndSwap(m, int64(sent)); m = most.Load() {
		}
		return c, nil
	})
	c.close()
	if most.Load() >= 16<<20 {
		return breached("16 MiB of headers were taken"), nil
	}
	// What the kernel holds on the way counts as sent.
	return held("%d connections, refused after %d KiB at most", n, most.Load()>>10), nil
}

// halfEnrolments holds many calls open on each connection of the listener for unknown agents.
func halfEnrolments(ctx context.Context, r *Rig) (Outcome, error) {
	const size = 60 << 10
	n := r.Many(1000, 4000)
	answered, err := r.send(ctx, bodies{
		url: "https://" + r.Addresses().Enrolment + "/enroll.v1.EnrollmentService/Enroll", contentType: "application/grpc",
		header: []byte{0, 0, 0, 0xff, 0xff}, size: size, requests: n, conns: 20,
	})
	return held("%d calls, %d of them cut off", n, answered), err
}

func restBodies(ctx context.Context, r *Rig) (Outcome, error) {
	n := r.Many(200, 2000)
	var all int64
	for _, http1 := range []bool{false, true} {
		answered, err := r.send(ctx, bodies{
			url: "https://" + r.Addresses().REST + "/api/v1/machines", contentType: "application/json", size: 2 << 20,
			requests: n / 2, conns: 20, http1: http1, answered: true,
		})
		if err != nil {
			return Outcome{}, err
		}
		all += answered
	}
	if all < int64(n) {
		return breached("%d of %d requests without a token are being read", int64(n)-all, n), nil
	}
	return held("%d requests, refused before their bodies", n), nil
}

func halfMessages(ctx context.Context, r *Rig) (Outcome, error) {
	n := r.Many(100, 1000)
	var all int64
	for _, method := range []string{"baremetal.v1.MachineService/ListMachines", "grpc.health.v1.Health/Check"} {
		answered, err := r.send(ctx, bodies{
			url: "https://" + r.Addresses().Frontpage + "/" + method, contentType: "application/grpc",
			header: []byte{0, 0, 0x20, 0, 0}, size: 1 << 20, requests: n, conns: 10,
		})
		if err != nil {
			return Outcome{}, err
		}
		all += answered
	}
	return held("%d calls, %d of them cut off", 2*n, all), nil
}

// healthFlood asks what anybody may ask, over many connections, and one that a balancer makes is answered.
func healthFlood(ctx context.Context, r *Rig) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	base := "http://" + r.Addresses().HTTP
	g, _ := task.New(ctx)
	var asked atomic.Int64
	for i := range 32 {
		tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn,
			error) {
			return r.Dial(ctx, i, address)
		}}
		defer tr.CloseIdleConnections()
		g.Go("hostile", func(ctx context.Context) error {
			client := http.Client{Transport: tr, Timeout: 5 * time.Second}
			for ctx.Err() == nil {
				for _, path := range []string{"/readyz", "/metrics"} {
					if err := get(ctx, &client, base+path); err == nil {
						asked.Add(1)
					}
				}
			}
			return nil
		})
	}
	var worst time.Duration
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range r.Many(20, 100) {
		began := time.Now()
		if err := get(ctx, &client, base+"/readyz"); err != nil {
			cancel()
			_ = g.Wait() // it returns none
			return breached("a balancer's check fails meanwhile: %v", err), nil
		}
		worst = max(worst, time.Since(began))
		hold(ctx, 100*time.Millisecond)
	}
	cancel()
	_ = g.Wait() // it returns none
	return held("%d requests; a balancer's check took %d ms at most", asked.Load(), worst.Milliseconds()), nil
}

func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
