package pgtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Everybody is the channel of what concerns all controllers.
const Everybody = "ingot_all"

// ownChannel returns the channel for messages to one controller. HandOver's query makes the same name.
func ownChannel(controllerID string) string { return "ingot_to_" + controllerID }

// Listener receives the messages.
type Listener struct {
	// Up is called when the connection stands and nothing is missed from then on: what came before may have been.
	Up func()
	// HandedOver and Announced take the text of a message.
	HandedOver, Announced func(payload string)
}

// probeEvery is how long nothing may come before the connection is asked whether it is still there; probeWait is how
// long its answer may take.
const (
	probeEvery = 5 * time.Second
	probeWait  = 5 * time.Second
)

// Listen hears what other controllers have to say, on a connection of its own, until that breaks or ctx ends. It always
// returns an error.
func (s *DB) Listen(ctx context.Context, controllerID string, l Listener) error {
	conn, err := s.connectRaw(ctx)
	if err != nil {
		return err
	}
	defer closeListener(ctx, conn)
	opening, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	for _, channel := range []string{Everybody, ownChannel(controllerID)} {
		if _, err := conn.Exec(opening, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	l.Up()
	for {
		if err := l.next(ctx, conn); err != nil {
			return err
		}
	}
}

func closeListener(ctx context.Context, conn *pgx.Conn) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(last) // the server sees the socket go in any case
}

// next takes one message. Where none comes for long it sees whether any could.
func (l Listener) next(ctx context.Context, conn *pgx.Conn) error {
	wait, cancel := context.WithTimeout(ctx, probeEvery)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	switch {
	case err == nil && n.Channel == Everybody:
		l.Announced(n.Payload)
	case err == nil:
		l.HandedOver(n.Payload)
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("listen: %w", err)
	default:
		probe, cancel := context.WithTimeout(ctx, probeWait)
		defer cancel()
		if err := conn.Ping(probe); err != nil {
			return fmt.Errorf("probe listening connection: %w", err)
		}
	}
	return nil
}
