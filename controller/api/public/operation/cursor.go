package operation

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

const cursorVersion = 1

// The kinds of watch cursor.
const (
	// cursorFeed is a place in the feed of all operations.
	cursorFeed = "f"
	// cursorActive is a place in the list of active operations that a watch begins with; the feed's head is its Xid.
	cursorActive = "a"
	// cursorOne is a place among one operation's events, which may be ahead of the feed.
	cursorOne = "o"
)

// cursor is where a watch goes on.
type cursor struct {
	Version     int    `json:"v"`
	Kind        string `json:"k"`
	Incarnation string `json:"n,omitempty"`
	// Selections is the digest of those that the caller is held to; empty where it sees every machine.
	Selections string `json:"l,omitempty"`
	Xid        string `json:"x"`
	Operation  string `json:"o,omitempty"`
	Seq        int64  `json:"s,omitempty"`
	// Phase and Time are those of the last active operation that was sent.
	Phase string    `json:"p,omitempty"`
	Time  time.Time `json:"t,omitzero"`
}

func (c cursor) String() string {
	c.Version = cursorVersion
	// Strings, numbers and times of four-digit years always serialize.
	b, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(b)
}

func (c cursor) pos() operationlog.FeedPos {
	return operationlog.FeedPos{Xid: c.Xid, Operation: c.Operation, Seq: c.Seq}
}

// at is the cursor after an event.
func (c cursor) at(kind string, p operationlog.FeedPos) cursor {
	return cursor{
		Kind:        kind,
		Incarnation: c.Incarnation,
		Selections:  c.Selections,
		Xid:         p.Xid,
		Operation:   p.Operation,
		Seq:         p.Seq,
	}
}

// parseCursor reads a cursor that is of the same database and the same selections as the one here.
func parseCursor(s string, here cursor) (cursor, error) {
	var c cursor
	if err := validate.Opaque(s, &c); err != nil || !c.valid() {
		return c, badCursor("not one of ours")
	}
	if c.Incarnation != here.Incarnation || c.Selections != here.Selections {
		return c, failure.Precondition("CURSOR_EXPIRED",
			"the cursor is of another incarnation of this database, or of other selections; watch anew").
			WithField("cursor", "expired")
	}
	return c, nil
}

func (c cursor) valid() bool {
	_, err := strconv.ParseUint(c.Xid, 10, 64)
	known := c.Kind == cursorFeed || c.Kind == cursorActive && activeIndex(c.Phase) >= 0 || c.Kind == cursorOne &&
		c.Operation != ""
	clean := strings.IndexFunc(c.Operation, unicode.IsControl) < 0 && (c.Time.IsZero() || c.Time.Year() > 1969)
	return err == nil && c.Version == cursorVersion && known && clean && c.Seq >= 0
}

func badCursor(why string) error {
	return failure.Invalid("INVALID_CURSOR", "cursor: %s", why).WithField("cursor", why)
}

// before reports whether a place in the feed comes before another.
func before(a, b operationlog.FeedPos) bool {
	if a.Xid != b.Xid {
		// Decimal numbers without leading zeros, as the database writes them.
		return len(a.Xid) < len(b.Xid) || len(a.Xid) == len(b.Xid) && a.Xid < b.Xid
	}
	if a.Operation != b.Operation {
		return a.Operation < b.Operation
	}
	return a.Seq < b.Seq
}
