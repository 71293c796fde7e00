package service

import (
	"context"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/validate"
)

const (
	// maxAnswer bounds the rows of one answer, in bytes: 4 MiB, which is what gRPC clients take by default, less room for
	// tokens.
	maxAnswer = 4<<20 - 16<<10
	// rowsAtOnce bounds the rows of a list that one statement reads: those of the largest page. Each further statement
	// of a page costs its own round trips.
	rowsAtOnce = 1000
)

// PageRequest is a request for a page of a list.
type PageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

// List is a list that is read in pages.
type List[M proto.Message] struct {
	// Name and filter are what a page token of this list is good for.
	Name, Filter string
	// Read returns the rows behind a place, at most limit.
	Read func(ctx context.Context, after validate.Page, limit int32) ([]M, error)
	// Uncounted is a list whose rows are not those of a statement: it has no total.
	Uncounted bool
	// Subject fails with NOT_FOUND where the list is of one thing and there is no such thing: its list is not empty, it is
	// wrong. Only a first page without rows asks. It is nil where the list is of no one thing.
	Subject func(ctx context.Context) error
	// Place is where a row stands.
	Place func(M) validate.Page
	// Short is a list that can be read whole: it is filtered and sorted here, by the fields of its rows.
	Short bool
	// Checks are of fields whose values a filter must know.
	Checks validate.Keys
}

// Rows is one page of a list.
type rows[M proto.Message] struct {
	Rows []M
	Next string
	// Total is how many rows all pages have; 0 where they could not be counted in time.
	Total int32
}

// Page reads one page: as many rows as were asked for, and no more than fit into an answer.
func Page[M proto.Message](ctx context.Context, s *Base, l List[M], r PageRequest) (out rows[M], err error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return out, err
	}
	if n, ok := r.(narrowed); ok && l.Short && n.GetFilter()+n.GetOrderBy() != "" {
		return short(ctx, l, n, size)
	}
	at, err := validate.ParsePage(r.GetPageToken(), l.Name, l.Filter)
	if err != nil {
		return out, err
	}
	more, err := out.fill(ctx, l, at, size)
	if err == nil && len(out.Rows) == 0 && r.GetPageToken() == "" {
		return out, l.known(ctx)
	}
	if err != nil || !more && r.GetPageToken() == "" {
		out.Total = int32(len(out.Rows))
		return out, err
	}
	if r.GetPageToken() == "" && !l.Uncounted {
		if at.Total, err = total(ctx, s, l.Read); err != nil {
			return out, err
		}
	}
	out.Total = at.Total
	if more {
		next := l.Place(out.Rows[len(out.Rows)-1])
		next.Total = at.Total
		out.Next = next.Token(l.Name, l.Filter)
	}
	return out, nil
}

// known returns the error of a list whose one thing does not exist.
func (l List[M]) known(ctx context.Context) error {
	if l.Subject == nil {
		return nil
	}
	return l.Subject(ctx)
}

// fill reads rows until the page is full, and reports whether there are more.
func (p *rows[M]) fill(ctx context.Context, l List[M], at validate.Page, size int32) (more bool, err error) {
	var bytes int
	for {
		limit := min(size-int32(len(p.Rows)), rowsAtOnce) + 1 // one more shows whether there is another page
		part, err := l.Read(ctx, at, limit)
		if err != nil {
			return false, err
		}
		last := len(part) < int(limit)
		if !last {
			part = part[:limit-1]
		}
		for _, m := range part {
			if bytes += sizeOf(m); bytes > maxAnswer && len(p.Rows) > 0 {
				return true, nil
			}
			p.Rows = append(p.Rows, m)
		}
		if last || int32(len(p.Rows)) == size {
			return !last, nil
		}
		at = l.Place(p.Rows[len(p.Rows)-1])
	}
}

// sizeOf is what a row takes in an answer, in bytes: its tag, its length, and itself.
func sizeOf(m proto.Message) int { return 1 + protowire.SizeBytes(proto.Size(m)) }

// RowsThatFit is how many of the rows fit into one answer: one at least.
func RowsThatFit[M proto.Message](all []M) int {
	bytes := 0
	for i, m := range all {
		if bytes += sizeOf(m); bytes > maxAnswer && i > 0 {
			return i
		}
	}
	return len(all)
}

// Total counts a list; 0 where that takes too long.
func total[M any](ctx context.Context, s *Base, read func(context.Context, validate.Page, int32) ([]M, error)) (int32,
	error,
) {
	n, known, err := s.stores.DB.Count(ctx, func(ctx context.Context) error {
		_, err := read(ctx, validate.Page{}, pgtx.AllRows)
		return err
	})
	if err != nil || !known {
		return 0, err
	}
	return int32(min(n, math.MaxInt32)), nil
}

// ByID is the place of a row in a list that is sorted by one identifier.
func ByID[M proto.Message](id func(M) string) func(M) validate.Page {
	return func(m M) validate.Page { return validate.Page{ID: id(m)} }
}

// ByTime is the place of a row in a list that is sorted by a time and an identifier.
func ByTime[M proto.Message](id func(M) string, at func(M) time.Time) func(M) validate.Page {
	return func(m M) validate.Page { return validate.Page{ID: id(m), Time: at(m)} }
}

// ByNumber is the place of a row in a list that is sorted by a number.
func ByNumber[M proto.Message](number func(M) int64) func(M) validate.Page {
	return func(m M) validate.Page { return validate.Page{ID: strconv.FormatInt(number(m), 10)} }
}

// Each converts the rows that a list has read.
func Each[T, M any](all []T, err error, convert func(T) M) ([]M, error) {
	if err != nil {
		return nil, err
	}
	out := make([]M, 0, len(all))
	for _, v := range all {
		out = append(out, convert(v))
	}
	return out, nil
}
