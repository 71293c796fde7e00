package bmc

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
)

// driver is a session at one BMC in one protocol. Errors are those of package provider, or refusals of package host.
type driver interface {
	Protocol() string
	PowerState(ctx context.Context) (provider.PowerState, error)
	Switch(ctx context.Context, s provider.Switch) error
	BootOnce(ctx context.Context) (provider.BootChoice, error)
	// SetBootOnce reports whether the BMC has only taken the order, to carry it out later.
	SetBootOnce(ctx context.Context, d provider.BootDevice) (ordered bool, err error)
	Identify(ctx context.Context, on bool) error
	Light(ctx context.Context) (provider.Light, error)
	Sensors(ctx context.Context) ([]provider.Sensor, error)
	EventLog(ctx context.Context, limit int) ([]provider.Event, error)
	Console(ctx context.Context, out io.Writer) error
	// Hardware returns what it has read even where the rest could not be.
	Hardware(ctx context.Context) (provider.Hardware, error)
	// SetPassword reports whether the BMC has only taken the order, to carry it out later. After ErrUnchanged nothing has
	// changed, as the BMC reports; after any other error it may have.
	SetPassword(ctx context.Context, user, password string) (later bool, err error)
	Media(ctx context.Context) ([]provider.Medium, error)
	// InsertMedia and EjectMedia return when the BMC has accepted.
	InsertMedia(ctx context.Context, slot, image string) error
	EjectMedia(ctx context.Context, slot string) error
	Close(ctx context.Context) error
}

// conn is the connection to one BMC. The holder of turn alone uses its fields, except key and turn.
type conn struct {
	key  string
	turn chan struct{}

	loaded bool
	record Record

	known   Credentials
	knownBy string // the reference they were asked for by; only valid with haveKnown
	have    bool

	conn    driver
	connBy  string // the credentials that conn was opened with, and the machine
	usedAt  time.Time
	slowest time.Duration // of its answers lately
	spokeIn Protocol      // the last protocol in which it was spoken to
	// lent: the known credentials are those of the caller, and are not asked for.
	lent bool
	// account: sessions are opened for the account alone, and with the privilege to change it.
	account bool
	// suffix distinguishes refusals of the account in another protocol from those that park it.
	suffix string
}

// heard takes how long an answer took. What was slow once is forgotten little by little.
func (l *conn) heard(d time.Duration) { l.slowest = max(d, l.slowest*7/8) }

// take waits for the turn.
func (l *conn) take(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the turn at BMC %s: %w", l.key, context.Cause(ctx))
	}
}

func (l *conn) release() { <-l.turn }

// load reads the record, once, and takes over what the controller knows: the certificate, and that refusals of before a
// time don't count any more.
func (l *conn) load(ctx context.Context, m Memory, pin string, unparked time.Time) error {
	if !l.loaded {
		r, err := m.Load(l.key)
		if err != nil {
			return err
		}
		l.record, l.loaded = r, true
	}
	before := l.record
	if pin != "" && pin != l.record.Pin {
		l.record.Pin, l.record.Offered = pin, ""
	}
	if unparked.After(l.record.Unparked) {
		l.record.Budget, l.record.Unparked, l.have = Budget{}, unparked, l.have && l.lent
	}
	if before.Pin == l.record.Pin && before.Unparked.Equal(l.record.Unparked) {
		return nil
	}
	l.close(ctx)
	return m.Save(l.key, l.record)
}

// farewell is the least time that a BMC gets to end a session, or to answer a log-in whose caller has gone.
const farewell = 2 * time.Second

// close ends the session. A BMC that is gone forgets it by itself.
func (l *conn) close(ctx context.Context) {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(farewell, 2*l.slowest))
	defer cancel()
	_ = l.conn.Close(ctx)
	l.conn = nil
}

// drop ends the session of a BMC that has just not answered. A Redfish session that is left open holds one of few
// slots, so it is worth one more request. IPMI's sessions end by themselves within a minute.
func (l *conn) drop() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(farewell, 2*l.slowest))
	defer cancel()
	if Protocol(l.conn.Protocol()) == IPMI {
		cancel()
	}
	_ = l.conn.Close(ctx)
	l.conn = nil
}

// idleMost is how long a session may lie unused. IPMI's are ended by the BMC after 60 s (6.12.15); Redfish reports an
// ended one.
var idleMost = map[Protocol]time.Duration{IPMI: 40 * time.Second, Redfish: 20 * time.Minute}

// fits reports whether the session can be used.
func (l *conn) fits(e Endpoint, by string, now time.Time) bool {
	if l.conn == nil || l.connBy != by {
		return false
	}
	spoken := Protocol(l.conn.Protocol())
	return (e.Protocol == Unknown || e.Protocol == spoken) && now.Sub(l.usedAt) < idleMost[spoken]
}
