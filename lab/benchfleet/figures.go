package main

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ingot-metal/ingot/lab/results"
)

const aboutFleet = "Sessions of simulated agents by the ten thousand, all on loopback: onboarding, memory, dispatch, a " +
	"reconnect storm after kill -9, a crowd over several controllers, a soak. Agents share the processors with " +
	"controllers and Postgres."

const aboutSizing = "What one controller and its Postgres need for so many machines, operations and polls: " +
	"heartbeats each 10 s, and operations that are each polled ten times. Plan for twice that: a reconnect storm takes " +
	"all there is."

// store puts the figures of the report into the file of results. A soak or a sizing alone leaves those of the others.
func (r *report) store(ctx context.Context, o options) error {
	run, err := results.Run{Name: "fleet", Title: "A fleet", About: aboutFleet}.Here(ctx, "lab/benchfleet")
	if err != nil {
		return err
	}
	switch o.stages {
	case soakStage:
		run.Name, run.Title = "soak", "Soak"
	case sizingStage:
		run.Name, run.Title, run.About = "sizing", "Sizing", aboutSizing
	}
	for _, x := range r.Rows {
		run.Figures = append(run.Figures, x.figure())
	}
	return results.Store(o.results, run)
}

func (r row) figure() results.Figure {
	f := results.Figure{What: strings.TrimSpace(r.What), Value: r.Value, Unit: r.Unit, Says: sentence(r.Note)}
	if r.Limit != nil {
		f.Limit = &results.Limit{Value: *r.Limit, AtLeast: r.AtLeast}
	}
	return f
}

// sentence makes one of a note.
func sentence(note string) string {
	if note == "" {
		return "The figure alone."
	}
	first, size := utf8.DecodeRuneInString(note)
	return fmt.Sprintf("%c%s.", unicode.ToUpper(first), note[size:])
}
