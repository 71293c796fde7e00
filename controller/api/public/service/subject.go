package service

import (
	"context"

	"github.com/ingot-metal/ingot/controller/validate"
)

// Subject is one thing, such as a machine, of which a list shows what belongs to it.
type Subject struct {
	// Name is the thing's, as the request names it; empty where the list is not of one thing.
	Name string
	// Read fails with NOT_FOUND where there is no such thing, and there was none.
	Read func(ctx context.Context, name string) error
}

// Subjects returns a List's Subject of the things that a request names.
func Subjects(all ...Subject) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, s := range all {
			if s.Name == "" {
				continue
			}
			if err := s.Read(ctx, s.Name); err != nil {
				return err
			}
		}
		return nil
	}
}

// Machine is the machine of a list, also one that was deleted.
func (s *Base) Machine(name string) Subject { return SubjectOf(name, s.stores.Machines.KnownMachine) }

// SubjectOf is a thing that read returns.
func SubjectOf[M any](name string, read func(context.Context, string) (M, error)) Subject {
	return Subject{Name: name, Read: func(ctx context.Context, name string) error {
		_, err := read(ctx, name)
		return err
	}}
}

// Named returns the value that the terms of a filter require of a key; empty where none does.
func Named(terms []validate.Term, key string) string {
	for _, t := range terms {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}
