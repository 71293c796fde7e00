// Package doctor has what the doctors of the controller, the agent and the command line share: findings with their
// remedies, how these are printed, and checks of any machine.
package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ErrFault is returned when at least one check has failed. The findings have been printed already.
var ErrFault = errors.New("doctor found a fault")

// Level is how a check ended.
type Level string

// The levels: all is well; an operator should look; something does not work.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is what a check has found.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	What  string `json:"finding"`
	// Remedy is the next step; empty where there is none.
	Remedy string `json:"remedy"`
}

// Well is a finding that asks for nothing.
func Well(check, what string) Finding { return Finding{Level: OK, Check: check, What: what} }

// Warning returns a finding that an operator should look at.
func Warning(check, what, remedy string) Finding {
	return Finding{Level: Warn, Check: check, What: what, Remedy: remedy}
}

// Fault is a finding of what does not work.
func Fault(check, what, remedy string) Finding {
	return Finding{Level: Fail, Check: check, What: what, Remedy: remedy}
}

// Text writes findings for people, a line each, with the remedy below it. It returns ErrFault where a check has failed.
func Text(w io.Writer, list []Finding) error {
	var err error
	for _, f := range list {
		_, e := fmt.Fprintf(w, "%-5s %-12s %s\n", f.Level, f.Check, f.What)
		if f.Remedy != "" {
			_, e2 := fmt.Fprintf(w, "      %-12s -> %s\n", "", f.Remedy)
			e = errors.Join(e, e2)
		}
		err = errors.Join(err, e)
	}
	return errors.Join(err, Err(list))
}

// JSON writes findings as one document. It returns ErrFault where a check has failed.
func JSON(w io.Writer, list []Finding) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string][]Finding{"checks": append([]Finding{}, list...)}); err != nil {
		return err
	}
	return Err(list)
}

// Err returns ErrFault where a check has failed.
func Err(list []Finding) error {
	if slices.ContainsFunc(list, func(f Finding) bool { return f.Level == Fail }) {
		return ErrFault
	}
	return nil
}

// Ends checks the time at which a certificate ends. Less than soon before it is a warning.
func Ends(check, what string, end, now time.Time, soon time.Duration, remedy string) Finding {
	date := end.UTC().Format(time.RFC3339)
	switch {
	case !now.Before(end):
		return Fault(check, what+" has ended on "+date, remedy)
	case now.Add(soon).After(end):
		return Warning(check, what+" ends on "+date, remedy)
	}
	return Well(check, what+" is valid until "+date)
}
