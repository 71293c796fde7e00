package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Loss names the part of a COMMIT that is lost.
type Loss int

const (
	// LostRequest ends the connection instead of passing the COMMIT on: the server rolls back.
	LostRequest Loss = iota + 1
	// LostAnswer ends the connection instead of passing the server's answer on: the server has committed.
	LostAnswer
	// LostBoth ends the connection once the COMMIT is passed on: the server commits, or meets the end first.
	LostBoth
	// LostServer is LostAnswer of a server that is not reached any more afterwards, until Unblock.
	LostServer
)

// OpenPostgres is Open for a target that is a PostgreSQL server whose clients use no TLS. The relay sees their COMMITs,
// and can lose them.
func OpenPostgres(network, address string) (*Relay, error) {
	r, err := open(network, address)
	if err == nil {
		r.postgres = true
		r.begin()
	}
	return r, err
}

// losing is the loss to make, and of which COMMIT.
type losing struct {
	what  Loss
	next  int // how many COMMITs there are until the lost one
	every int // that many later another one is lost; 0: none is
}

// LoseCommit loses the n-th COMMIT from now on, the next one for 1.
func (r *Relay) LoseCommit(n int, what Loss) { r.lose(losing{what, n, 0}) }

// LoseCommits loses each n-th COMMIT from now on, until Heal.
func (r *Relay) LoseCommits(n int, what Loss) { r.lose(losing{what, n, n}) }

func (r *Relay) lose(l losing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losing = l
}

// Lost returns how many COMMITs were lost so far.
func (r *Relay) Lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// meetsCommit counts a COMMIT and returns its loss; 0 for none.
func (r *Relay) meetsCommit() Loss {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.losing.next == 0 {
		return 0
	}
	if r.losing.next--; r.losing.next > 0 {
		return 0
	}
	r.losing.next = r.losing.every
	r.lost++
	r.struck++
	return r.losing.what
}

// errLost ends a connection whose COMMIT is lost.
var errLost = errors.New("a COMMIT was lost")

// copyCommits is copy for a direction to a PostgreSQL server.
func (r *Relay) copyCommits(p *pair, to net.Conn, from io.Reader) {
	f := &frontend{}
	r.copyThrough(to, from, Up, func(b []byte) (keep []byte, err error) {
		for _, start := range f.commits(b) {
			switch r.meetsCommit() {
			case LostRequest:
				return b[:max(0, start)], errLost
			case LostServer:
				r.refuse()
				r.deafen()
			case LostAnswer:
				p.deaf.Store(true)
			case LostBoth:
				p.deaf.Store(true)
				return b, errLost
			}
		}
		return b, nil
	})
}

// copyAnswers is copy for the direction back. What comes after a COMMIT whose answer is lost ends the connection.
func (r *Relay) copyAnswers(p *pair, to net.Conn, from io.Reader) {
	r.copyThrough(to, from, Down, func(b []byte) ([]byte, error) {
		if p.deaf.Load() {
			return nil, errLost
		}
		return b, nil
	})
}

// frontend finds the COMMITs in what a client sends (PostgreSQL documentation, message formats).
type frontend struct {
	started bool
	head    []byte // the beginning of a message that has not come whole
	left    int    // bytes of a message that are skipped
}

const (
	commitLength = 5 + len("commit\x00")
	sslRequest   = 80877103
	gssRequest   = 80877104
)

// commits returns where in b the messages begin that are COMMITs and end in b. Below 0 lies what came before b.
func (f *frontend) commits(b []byte) (starts []int) {
	for i := 0; i < len(b); {
		if f.left > 0 {
			n := min(f.left, len(b)-i)
			f.left, i = f.left-n, i+n
			continue
		}
		f.head, i = append(f.head, b[i]), i+1
		if f.message() {
			starts = append(starts, i-commitLength)
		}
	}
	return starts
}

// message looks at the head of a message, and reports whether that is a whole COMMIT.
func (f *frontend) message() (commit bool) {
	n := len(f.head)
	switch {
	case !f.started && n == 8:
		code := binary.BigEndian.Uint32(f.head[4:])
		f.started = code != sslRequest && code != gssRequest
		f.left = int(binary.BigEndian.Uint32(f.head)) - n
	case f.started && n == 5 && f.head[0] == 'Q' && int(f.head[4])+1 == commitLength && f.head[3] == 0:
		return false // a query as long as a COMMIT is read whole
	case f.started && n == 5:
		f.left = int(binary.BigEndian.Uint32(f.head[1:])) - 4
	case f.started && n == commitLength:
		commit = strings.EqualFold(string(f.head[5:]), "commit\x00")
	default:
		return false
	}
	f.head = f.head[:0]
	return commit
}

// ForDatabase opens a relay to the PostgreSQL server of a connection string, and returns the connection string that
// leads through it.
func ForDatabase(databaseURL string) (r *Relay, through string, err error) {
	c, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, "", fmt.Errorf("parse database url: %w", err)
	}
	network, address := pgconn.NetworkAddress(c.Host, c.Port)
	if r, err = OpenPostgres(network, address); err != nil {
		return nil, "", err
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Host: r.Address(), Path: "/" + c.Database,
		RawQuery: url.Values{"sslmode": {"disable"}, "connect_timeout": {"2"}}.Encode(),
	}
	return r, u.String(), nil
}
