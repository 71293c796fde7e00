package machine

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// Cursor is a place in the order of changes. Transaction ids mean nothing in another cluster, so it names its own.
type Cursor struct {
	Version     int    `json:"v"`
	System      string `json:"s"`
	Timeline    string `json:"t"`
	Incarnation string `json:"i"`
	Xid         string `json:"x"`
	Machine     string `json:"m,omitempty"`
	// Selections is the digest of those that the reader is held to; empty where it sees every machine.
	Selections string `json:"l,omitempty"`
}

// CursorVersion is the version of cursors that are made now.
const CursorVersion = 1

// String returns the cursor as clients keep it.
func (c Cursor) String() string {
	// A struct of strings always serializes.
	b, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor is the inverse of Cursor.String; INVALID_CURSOR for any other text.
func ParseCursor(s string) (Cursor, error) {
	var c Cursor
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.Version != CursorVersion || c.Xid == "" || !digits(c.Xid) {
		return c, invalidCursor()
	}
	return c, nil
}

func invalidCursor() error {
	return failure.Invalid("INVALID_CURSOR", "the cursor is not one of ours").WithField("cursor", "malformed")
}

func digits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return len(s) <= 20
}

// ContinuesAt refuses a cursor that is not of this database as it is now, or of a reader that sees other machines.
func (c Cursor) ContinuesAt(here Cursor) error {
	if c.System != here.System || c.Timeline != here.Timeline || c.Incarnation != here.Incarnation ||
		c.Selections != here.Selections {
		return expired()
	}
	return nil
}

func expired() error {
	return failure.Precondition("CURSOR_EXPIRED",
		"the cursor is of another incarnation of this database, of other selections, or too old; walk the fleet again").
		WithField("cursor", "expired")
}

// Departures are how far back the departures of machines from selections are stored.
type Departures struct {
	Since time.Time
	// Through is the last transaction whose departures may have been removed; 0 for none.
	Through uint64
}

// Kept refuses to go on from a place behind which departures have been removed. A cursor without selections is of a
// first read, which begins at a time.
func (c Cursor) Kept(d Departures, since time.Time) error {
	behind, err := c.Transaction()
	if err != nil {
		return err
	}
	byTime := c.Selections == ""
	if byTime && since.Before(d.Since) || !byTime && d.Through > 0 && behind <= d.Through {
		return expired()
	}
	return nil
}

// Transaction returns the transaction of the cursor's place.
func (c Cursor) Transaction() (uint64, error) {
	xid, err := strconv.ParseUint(c.Xid, 10, 64)
	if err != nil {
		return 0, invalidCursor()
	}
	return xid, nil
}
