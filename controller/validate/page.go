package validate

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	maxPage     = 1000
	pageVersion = 1
	maxToken    = 4096
)

// Unlimited is the size of a page that only the size of an answer bounds.
const Unlimited = math.MaxInt32 - 1

// PageSize returns the largest number of rows of a page: Unlimited for 0, else never more than 1000.
func PageSize(n int32) (int32, error) {
	switch {
	case n < 0:
		return 0, Fault("page_size", "not negative; 0 means as many rows as fit into an answer")
	case n == 0:
		return Unlimited, nil
	}
	return min(n, maxPage), nil
}

// Page is a place in a list, as a page token holds it.
type Page struct {
	// ID and Time are those of the last row of the page before.
	ID   string    `json:"i,omitempty"`
	Time time.Time `json:"t,omitzero"`
	// Key is what the rows are sorted by before their ID, where it is a text.
	Key string `json:"k,omitempty"`
	// Part counts the parts of a list that is read in several; ID may be empty at the start of a later one.
	Part int `json:"p,omitempty"`
	// Total is how many rows the list had when its first page was read; 0 is not known. It is carried to all other pages.
	Total int32 `json:"n,omitempty"`
	// Cursor and Safe are carried from the first page of a walk to all others.
	Cursor string    `json:"c,omitempty"`
	Safe   time.Time `json:"s,omitzero"`
}

type pageToken struct {
	Version int    `json:"v"`
	List    string `json:"l"`
	Page
}

// Token makes a page token that is good for this list and this filter only.
func (p Page) Token(list, filter string) string {
	// Strings and times of four-digit years always serialize.
	b, _ := json.Marshal(pageToken{Version: pageVersion, List: listKey(list, filter), Page: p})
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParsePage reads a page token back; an empty one is the zero Page.
func ParsePage(token, list, filter string) (Page, error) {
	if token == "" {
		return Page{}, nil
	}
	var p pageToken
	if err := Opaque(token, &p); err != nil || p.Version != pageVersion || !plausible(p.Page) {
		return Page{}, badToken("malformed")
	}
	if p.List != listKey(list, filter) {
		return Page{}, badToken("belongs to another list, filter or order")
	}
	return p.Page, nil
}

// plausible refuses what no token of ours holds and a database would choke on.
func plausible(p Page) bool {
	year := func(t time.Time) bool { return t.IsZero() || t.Year() > 1969 && t.Year() < 10000 }
	return p.Total >= 0 && (p.ID != "" || p.Part > 0) && p.Part >= 0 && p.Part < 1024 &&
		strings.IndexFunc(p.ID+p.Key+p.Cursor, unicode.IsControl) < 0 && year(p.Time) && year(p.Safe)
}

// AuditPosition reads Page.ID as the number of an audit row; 0 at the start of the list.
func (p Page) AuditPosition() (int64, error) {
	if p.ID == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(p.ID, 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, badToken("malformed")
	}
	return int64(n), nil
}

// HistoryPosition reads Page.ID as the number of an entry and that of a change in it, "12.3"; 0 at the start of the
// list.
func (p Page) HistoryPosition() (seq int64, change int32, err error) {
	if p.ID == "" {
		return 0, 0, nil
	}
	entry, rest, _ := strings.Cut(p.ID, ".")
	if seq, err = (Page{ID: entry}).AuditPosition(); err != nil {
		return 0, 0, err
	}
	n, err := strconv.ParseUint(rest, 10, 31)
	if err != nil {
		return 0, 0, badToken("malformed")
	}
	return seq, int32(n), nil
}

func badToken(why string) error {
	return failure.Invalid("INVALID_PAGE_TOKEN", "page_token: %s", why).WithField("page_token", why)
}

func listKey(list, filter string) string {
	sum := sha256.Sum256([]byte(list + "\x00" + filter))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Opaque decodes the base64url JSON of a token of ours into v. Unknown keys and trailing bytes are errors.
func Opaque(token string, v any) error {
	if len(token) > maxToken {
		return fmt.Errorf("token of %d bytes", len(token))
	}
	if strings.ContainsAny(token, "\r\n") { // the decoder would skip them
		return fmt.Errorf("decode token: line break")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return fmt.Errorf("decode token: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode token: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("decode token: trailing bytes")
	}
	return nil
}
