package netcheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ingot-metal/ingot/internal/task"
)

const (
	dnsTries = 3
	dnsWait  = time.Second
)

// answer is what a name server has said.
type answer struct {
	server netip.Addr
	over   string
	code   dnsmessage.RCode
	err    error
}

// nameServers asks each server for the root's servers, which every resolver knows. The servers are keys, with the
// interface that they were ordered for.
func nameServers(ctx context.Context, servers map[netip.Addr]string) []Check {
	g, _ := task.New(ctx)
	said := make(chan answer, len(servers))
	for server, over := range servers {
		g.Go("ask "+server.String(), func(ctx context.Context) error {
			a := answer{server: server, over: over}
			a.code, a.err = ask(ctx, server)
			said <- a
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return []Check{{Name: NameServer, Subject: "all", Result: Unknown, Detail: err.Error()}}
	}
	var answers []answer
	for range servers {
		answers = append(answers, <-said)
	}
	return judgeServers(answers)
}

// judgeServers: a resolver goes on to the next server, so that one dead one is a warning. All dead ones are a failure.
func judgeServers(answers []answer) []Check {
	dead := Fail
	for _, a := range answers {
		if a.err == nil {
			dead = Warn
		}
	}
	var out []Check
	for _, a := range answers {
		c := Check{Name: NameServer, Subject: a.over + " " + a.server.String(), Result: Pass, Detail: "answers"}
		switch {
		case a.err != nil:
			c.Result, c.Detail = dead, a.err.Error()
		case a.code != dnsmessage.RCodeSuccess && a.code != dnsmessage.RCodeNameError:
			c.Result, c.Detail = Warn, fmt.Sprintf("answers with %s", a.code)
		}
		out = append(out, c)
	}
	return out
}

// ask sends a query over UDP until it is answered (RFC 1035).
func ask(ctx context.Context, server netip.Addr) (code dnsmessage.RCode, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(server, 53).String())
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing is owed to it
	id := uint16(rand.Uint32())
	query, err := rootQuery(id)
	if err != nil {
		return 0, err
	}
	for range dnsTries {
		if code, err = askOnce(c, query, id); err == nil || ctx.Err() != nil {
			return code, err
		}
		if err := pause(ctx); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no answer to %d queries: %w", dnsTries, err)
}

func rootQuery(id uint16) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	q := dnsmessage.Question{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeNS, Class: dnsmessage.ClassINET}
	if err := errors.Join(b.StartQuestions(), b.Question(q)); err != nil {
		return nil, fmt.Errorf("encode a query: %w", err)
	}
	query, err := b.Finish()
	if err != nil {
		return nil, fmt.Errorf("encode a query: %w", err)
	}
	return query, nil
}

// askOnce ignores messages that do not answer the query.
func askOnce(c net.Conn, query []byte, id uint16) (dnsmessage.RCode, error) {
	if err := c.SetDeadline(time.Now().Add(dnsWait)); err != nil {
		return 0, fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := c.Write(query); err != nil {
		return 0, fmt.Errorf("send: %w", err)
	}
	buffer := make([]byte, 4096)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return 0, fmt.Errorf("receive: %w", err)
		}
		var p dnsmessage.Parser
		h, err := p.Start(buffer[:n])
		if err == nil && h.ID == id && h.Response {
			return h.RCode, nil
		}
	}
}
