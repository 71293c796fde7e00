package public

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
	// rowsAtOnce is how many rows of a list are read by one statement.
	rowsAtOnce = 512
)

// pageRequest is a request for a page of a list.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

// list is a list that is read in pages.
type list[M proto.Message] struct {
	// name and filter are what a page token of this list is good for.
	name, filter string
	// read returns the rows behind a place, at most limit.
	read func(ctx context.Context, after validate.Page, limit int32) ([]M, error)
	// uncounted is a list whose rows are not those of a statement: it has no total.
	uncounted bool
	// place is where a row stands.
	place func(M) validate.Page
}

// rows is one page of a list.
type rows[M proto.Message] struct {
	rows []M
	next string
	// total is how many rows all pages have; 0 where they could not be counted in time.
	total int32
}

// page reads one page: as many rows as were asked for, and no more than fit into an answer.
func page[M proto.Message](ctx context.Context, s *Server, l list[M], r pageRequest) (out rows[M], err error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return out, err
	}
	at, err := validate.ParsePage(r.GetPageToken(), l.name, l.filter)
	if err != nil {
		return out, err
	}
	more, err := out.fill(ctx, l, at, size)
	if err != nil || !more && r.GetPageToken() == "" {
		out.total = int32(len(out.rows))
		return out, err
	}
	if r.GetPageToken() == "" && !l.uncounted {
		if at.Total, err = total(ctx, s, l.read); err != nil {
			return out, err
		}
	}
	out.total = at.Total
	if more {
		next := l.place(out.rows[len(out.rows)-1])
		next.Total = at.Total
		out.next = next.Token(l.name, l.filter)
	}
	return out, nil
}

// fill reads rows until the page is full, and reports whether there are more.
func (p *rows[M]) fill(ctx context.Context, l list[M], at validate.Page, size int32) (more bool, err error) {
	var bytes int
	for {
		limit := min(size-int32(len(p.rows)), rowsAtOnce) + 1 // one more shows whether there is another page
		part, err := l.read(ctx, at, limit)
		if err != nil {
			return false, err
		}
		last := len(part) < int(limit)
		if !last {
			part = part[:limit-1]
		}
		for _, m := range part {
			if bytes += sizeOf(m); bytes > maxAnswer && len(p.rows) > 0 {
				return true, nil
			}
			p.rows = append(p.rows, m)
		}
		if last || int32(len(p.rows)) == size {
			return !last, nil
		}
		at = l.place(p.rows[len(p.rows)-1])
	}
}

// sizeOf is what a row takes in an answer, in bytes: its tag, its length, and itself.
func sizeOf(m proto.Message) int { return 1 + protowire.SizeBytes(proto.Size(m)) }

// rowsThatFit is how many of the rows fit into one answer: one at least.
func rowsThatFit[M proto.Message](all []M) int {
	bytes := 0
	for i, m := range all {
		if bytes += sizeOf(m); bytes > maxAnswer && i > 0 {
			return i
		}
	}
	return len(all)
}

// total counts a list; 0 where that takes too long.
func total[M any](ctx context.Context, s *Server, read func(context.Context, validate.Page, int32) ([]M, error)) (int32,
	error,
) {
	n, known, err := s.store.Count(ctx, func(ctx context.Context) error {
		_, err := read(ctx, validate.Page{}, pgtx.AllRows)
		return err
	})
	if err != nil || !known {
		return 0, err
	}
	return int32(min(n, math.MaxInt32)), nil
}

// byID is the place of a row in a list that is sorted by one identifier.
func byID[M proto.Message](id func(M) string) func(M) validate.Page {
	return func(m M) validate.Page { return validate.Page{ID: id(m)} }
}

// byTime is the place of a row in a list that is sorted by a time and an identifier.
func byTime[M proto.Message](id func(M) string, at func(M) time.Time) func(M) validate.Page {
	return func(m M) validate.Page { return validate.Page{ID: id(m), Time: at(m)} }
}

// byNumber is the place of a row in a list that is sorted by a number.
func byNumber[M proto.Message](number func(M) int64) func(M) validate.Page {
	return func(m M) validate.Page { return validate.Page{ID: strconv.FormatInt(number(m), 10)} }
}

// each converts the rows that a list has read.
func each[T, M any](all []T, err error, convert func(T) M) ([]M, error) {
	if err != nil {
		return nil, err
	}
	out := make([]M, 0, len(all))
	for _, v := range all {
		out = append(out, convert(v))
	}
	return out, nil
}
