// Package pgfailure teaches failure.From the errors of PostgreSQL and its driver. Import it, if only for its
// effect, in the package that talks to the database; binaries without one don't link the driver.
package pgfailure

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/ingot-metal/ingot/internal/failure"
)

// ReasonDatabaseUnavailable is the reason of every error that Classify makes.
const ReasonDatabaseUnavailable = "DATABASE_UNAVAILABLE"

func init() { failure.Register(Classify) }

// Classify turns the error of a database that is away, full or starting into a retryable Unavailable. It returns nil
// for every other: a statement that the server refused is a bug of ours, and a canceled call is not the database's
// fault.
func Classify(err error) *failure.Error {
	if !unavailable(err) {
		return nil
	}
	return failure.Unavailable(ReasonDatabaseUnavailable, "the database is not available").Wrap(err)
}

func unavailable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return unavailableState(pg.Code)
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		// A deadline here is as a rule our connect_timeout and a server that does not answer.
		return !errors.Is(err, context.Canceled)
	}
	return broken(err) && fromDriver(err)
}

// unavailableState reports whether an SQLSTATE is of a server that cannot serve clients now (PostgreSQL documentation,
// appendix A). These are class 08 connection exception and class 53 insufficient resources (53300 is too many
// connections). 57P01 to 57P05 are shutdown, crash, starting up, database dropped, idle session. 25006 is a primary
// that has become a standby.
func unavailableState(code string) bool {
	if len(code) != 5 {
		return false
	}
	switch code[:2] {
	case "08", "53":
		return true
	case "57":
		return code[2] == 'P'
	}
	return code == "25006"
}

// broken reports whether a connection ended under its user. A timeout counts unless it was the caller's own.
func broken(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var ne net.Error
	return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, puddle.ErrClosedPool)
}

// fromDriver distinguishes the driver's broken connections from those of other network code: the errors of pgconn carry
// SafeToRetry, those of the pool are known by name.
func fromDriver(err error) bool {
	var marked interface{ SafeToRetry() bool }
	return errors.As(err, &marked) || errors.Is(err, puddle.ErrClosedPool) || errors.Is(err, pgconn.ErrConnClosed)
}
