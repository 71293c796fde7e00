package service

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	rowsof "github.com/ingot-metal/ingot/controller/api/public/rows"
	"github.com/ingot-metal/ingot/controller/validate"
)

// narrowed is a request for a list that may be filtered and sorted.
type narrowed interface {
	PageRequest
	GetFilter() string
	GetOrderBy() string
}

// short reads a page of a list that is read whole for it. A place in an order is a row's value and its identifier. So a
// page begins where the one before ended, whatever has come and gone meanwhile.
func short[M proto.Message](ctx context.Context, l List[M], r narrowed, size int32) (out rows[M], err error) {
	var none M
	columns := rowsof.Of(none.ProtoReflect().Descriptor(), l.Checks)
	matches, err := columns.Filter(r.GetFilter())
	if err != nil {
		return out, err
	}
	order, err := columns.Order(r.GetOrderBy())
	if err != nil {
		return out, err
	}
	good := strings.Join([]string{l.Filter, r.GetFilter(), r.GetOrderBy()}, "\x00")
	at, err := validate.ParsePage(r.GetPageToken(), l.Name, good)
	if err != nil {
		return out, err
	}
	from := at
	if !order.None() {
		from = validate.Page{}
	}
	all, err := whole(ctx, l, from, matches)
	if err != nil {
		return out, err
	}
	if r.GetPageToken() == "" {
		at.Total = int32(len(all))
	}
	if len(all) == 0 && r.GetPageToken() == "" {
		return out, l.known(ctx)
	}
	place := func(m M) rowsof.Place { return order.Place(m, rowID(l.Place(m))) }
	if !order.None() {
		slices.SortStableFunc(all, func(a, b M) int { return order.Compare(place(a), place(b)) })
		if last := (rowsof.Place{Value: at.Key, ID: at.ID}); r.GetPageToken() != "" {
			all = slices.DeleteFunc(all, func(m M) bool { return order.Compare(place(m), last) <= 0 })
		}
	}
	out.Rows = all[:RowsThatFit(all[:min(len(all), int(size))])]
	out.Total = at.Total
	if n := len(out.Rows); n < len(all) {
		next := l.Place(out.Rows[n-1])
		if !order.None() {
			last := place(out.Rows[n-1])
			next = validate.Page{Key: last.Value, ID: last.ID}
		}
		next.Total = at.Total
		out.Next = next.Token(l.Name, good)
	}
	return out, nil
}

// rowID returns the identifier of a row in its list.
func rowID(p validate.Page) string { return strings.TrimSpace(p.Key + " " + p.ID) }

// whole reads the rows behind a place that match.
func whole[M proto.Message](
	ctx context.Context, l List[M], at validate.Page, matches func(proto.Message) bool,
) (out []M, err error) {
	for {
		part, err := l.Read(ctx, at, rowsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, m := range part {
			if matches(m) {
				out = append(out, m)
			}
		}
		if len(part) < rowsAtOnce {
			return out, nil
		}
		at = l.Place(part[len(part)-1])
	}
}
