package pgtx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/internal/ids"
)

// applicationName is the one parameter of a connection's start that PgBouncer takes of those set here.
const applicationName = "application_name"

// sessionSettings returns the settings of a session: those of the URL, and the defaults of what it leaves out.
func sessionSettings(ofURL map[string]string) map[string]string {
	settings := map[string]string{
		// Transactions that stay open hold back every reader of the reconcile cursor: bound them.
		"idle_in_transaction_session_timeout": "10000",
		"statement_timeout":                   "30000",
		// No statement here is worth compiling, whatever the planner thinks that it costs.
		"jit": "off",
		// Frequently read pages are in memory. With the cost of a disk that seeks, tables of a few thousand rows would be
		// read whole for each handful of ids. A plan that was made for a young database is kept for long.
		"random_page_cost": "1.1",
		applicationName:    "ingot-controller",
	}
	maps.Copy(settings, ofURL)
	return settings
}

// setAll sets what a session needs once its connection stands: PgBouncer refuses parameters at the start. The
// statement needs no prepared statement, which a pool in transaction mode would lose.
func setAll(ctx context.Context, conn *pgx.Conn, settings map[string]string) error {
	var calls []string
	var values [][]byte
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		values = append(values, []byte(name), []byte(settings[name]))
		calls = append(calls, fmt.Sprintf("set_config($%d, $%d, false)", len(values)-1, len(values)))
	}
	result := conn.PgConn().ExecParams(ctx, "SELECT "+strings.Join(calls, ", "), values, nil, nil, nil)
	if _, err := result.Close(); err != nil {
		return fmt.Errorf("set up the database session: %w", err)
	}
	return nil
}

const (
	// probeChannel carries what CheckSessions sends itself.
	probeChannel = "ingot_probe"
	// noticeTime is how long a notification may take to arrive.
	noticeTime = 5 * time.Second
)

// CheckSessions returns an error where a connection does not keep its session between transactions:
// controllers would hear nothing of each other. The witness is a notification that the listener never receives.
func (s *DB) CheckSessions(ctx context.Context) error {
	listener, err := s.connectRaw(ctx)
	if err != nil {
		return err
	}
	defer closeListener(ctx, listener)
	if _, err := listener.Exec(ctx, "LISTEN "+probeChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	sender, err := s.connectRaw(ctx)
	if err != nil {
		return err
	}
	defer closeListener(ctx, sender)
	sent := ids.Secret(16)
	if _, err := sender.Exec(ctx, "NOTIFY "+probeChannel+", '"+sent+"'"); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	for {
		n, err := listener.WaitForNotification(waiting)
		switch {
		case err == nil && n.Payload == sent:
			return nil
		case err == nil: // another controller's
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("database.url does not keep a session: a notification did not arrive within %v. Use a pool in "+
				"session mode (PgBouncer: pool_mode = session), or PostgreSQL itself", noticeTime)
		default:
			return fmt.Errorf("listen: %w", err)
		}
	}
}

// connectRaw opens a connection beside the pool, whose session is as the server sets it up.
func (s *DB) connectRaw(ctx context.Context) (*pgx.Conn, error) {
	cfg := s.pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams[applicationName] = "ingot-controller-listen"
	opening, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	conn, err := pgx.ConnectConfig(opening, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to listen: %w", err)
	}
	return conn, nil
}
