package command

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ingot-metal/ingot/cli/view"
)

// call is a unary method of a client.
type call[Q, R proto.Message] = func(ctx context.Context, request Q, opts ...grpc.CallOption) (R, error)

// page is the answer of a method that lists.
type page interface {
	proto.Message
	GetNextPageToken() string
}

// All reads a list of things T to its end, or to limit entries where limit is above 0. It sets the page fields of
// request.
func All[T, Q proto.Message, R page](ctx context.Context, limit int, list call[Q, R], request Q) ([]T, error) {
	return Pages(limit, func(size int32, token string) ([]T, string, error) {
		set(request, "page_size", size)
		set(request, "page_token", token)
		r, err := list(ctx, request)
		if err != nil {
			return nil, "", err
		}
		return entries[T](r), r.GetNextPageToken(), nil
	})
}

// entries returns the entries of a list's answer.
func entries[T proto.Message](answer proto.Message) []T {
	list := entriesOf[T](answer)
	all := make([]T, list.Len())
	for i := range all {
		all[i] = list.Get(i).Message().Interface().(T)
	}
	return all
}

// entriesOf returns the field of a list's answer that holds its entries. An answer without one is a mistake in the
// code: it panics, and ListOf asks for it while the commands are made, which every test of a command does.
func entriesOf[T proto.Message](answer proto.Message) protoreflect.List {
	var entry T
	fields := answer.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.IsList() && f.Message() == entry.ProtoReflect().Descriptor() {
			return answer.ProtoReflect().Mutable(f).List()
		}
	}
	panic("no list of " + string(entry.ProtoReflect().Descriptor().FullName()))
}

// field returns a field of a message by its name in the proto.
func field(m proto.Message, name protoreflect.Name) protoreflect.Value {
	r := m.ProtoReflect()
	return r.Get(r.Descriptor().Fields().ByName(name))
}

// set sets a field of a message by its name in the proto.
func set(m proto.Message, name protoreflect.Name, value any) {
	r := m.ProtoReflect()
	r.Set(r.Descriptor().Fields().ByName(name), protoreflect.ValueOf(value))
}

// empty returns a new message of a type.
func empty[M proto.Message]() M {
	var none M
	return none.ProtoReflect().New().Interface().(M)
}

// List describes a command that lists one kind of thing to its end.
type List[Q proto.Message, R page, T proto.Message] struct {
	// Request is sent for each page; flags may point into it.
	Request Q
	// Prepare completes the request from the arguments, and Keep drops entries of the answer. Both may be nil.
	Prepare func(args []string) error
	Keep    func([]T) []T
	// Subject fails where Keep drops all entries that are not of one thing, and there is no such thing. It may be nil.
	Subject func(context.Context) error
	// Limit is the number of entries that are read; 0 is all.
	Limit int

	list    call[Q, R]
	name    func(T) string
	columns view.Columns[T]
}

// ListOf describes a list: the method that reads it, an entry's name for -o name, and the columns of the table.
func ListOf[Q proto.Message, R page, T proto.Message](
	list call[Q, R], name func(T) string, columns view.Columns[T],
) *List[Q, R, T] {
	entriesOf[T](empty[R]())
	return &List[Q, R, T]{Request: empty[Q](), list: list, name: name, columns: columns}
}

// Command makes cmd the command that prints the list. It has --filter and --order-by, with filter and order as their
// examples, unless filter is empty.
func (l *List[Q, R, T]) Command(a *App, cmd *cobra.Command, filter, order string) *cobra.Command {
	cmd.Use = cmp.Or(cmd.Use, "list")
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	var narrow Narrow
	if filter != "" {
		narrow.Register(cmd, filter, order)
	}
	cmd.RunE = a.Run(func(cmd *cobra.Command, _ *Services, args []string) error {
		if filter != "" {
			set(l.Request, "filter", narrow.Filter)
			set(l.Request, "order_by", narrow.OrderBy)
		}
		return l.Run(cmd.Context(), a, args)
	})
	return cmd
}

// Run reads the list and prints it.
func (l *List[Q, R, T]) Run(ctx context.Context, a *App, args []string) error {
	if l.Prepare != nil {
		if err := l.Prepare(args); err != nil {
			return err
		}
	}
	all, err := All[T](ctx, l.Limit, l.list, l.Request)
	if err != nil {
		return err
	}
	if l.Keep != nil {
		all = l.Keep(all)
	}
	if len(all) == 0 && l.Subject != nil {
		if err := l.Subject(ctx); err != nil {
			return err
		}
	}
	return l.Print(a, all)
}

// Print prints entries as the list prints its own.
func (l *List[Q, R, T]) Print(a *App, all []T) error {
	answer := empty[R]()
	list := entriesOf[T](answer)
	for _, each := range all {
		list.Append(protoreflect.ValueOfMessage(each.ProtoReflect()))
	}
	return a.Print(answer, func() string { return Table(a, l.columns, all...) }, Names(all, l.name)...)
}

// Table returns the table of rows, as wide as --output wants it.
func Table[T any](a *App, columns view.Columns[T], rows ...T) string {
	return view.TableOf(a.Style(), a.Wide(), columns, rows...).String()
}

// Show returns the body of a command that takes one name and prints the answer of one call. The name is the first field
// of the request. The name is the subject of hints, where it is a machine's or an operation's.
func Show[Q, R proto.Message](
	a *App, method call[Q, R], name func(R) string, text func(view.Style, R) string,
) func(*cobra.Command, []string) error {
	return a.Run(func(cmd *cobra.Command, _ *Services, args []string) error {
		request := empty[Q]()
		first := request.ProtoReflect().Descriptor().Fields().ByNumber(1)
		set(request, first.Name(), args[0])
		switch first.Name() {
		case "machine_id", "node_id":
			a.Subject.Machine = args[0]
		case "operation_id", "run_id":
			a.Subject.Operation = args[0]
		}
		answer, err := method(cmd.Context(), request)
		if err != nil {
			return err
		}
		return a.Print(answer, func() string { return text(a.Style(), answer) }, name(answer))
	})
}

// Do is Show for a call that changes something: what it prints begins with what was done.
func Do[Q, R proto.Message](
	a *App, done string, method call[Q, R], name func(R) string,
) func(*cobra.Command, []string) error {
	return Show(a, method, name, func(_ view.Style, answer R) string { return done + " " + name(answer) + "\n" })
}
