package maas

import (
	"context"

	"github.com/ingot-metal/ingot/internal/failure"
)

// eventsRead is how many of a machine's events are read.
const eventsRead = 100

// Observe reads what an action decides by. The error is an *Error, or a failure with a Reason.
func (c *Client) Observe(ctx context.Context, a Action, o Order, p *Progress) (Seen, error) {
	list, err := c.Find(ctx, o.MACs)
	if err != nil {
		return Seen{}, err
	}
	s := Seen{}
	if s.M, err = the(list, p.SystemID); err != nil || s.M == nil {
		s.P = *p
		return s, err
	}
	if p.SystemID == "" {
		p.SystemID = s.M.SystemID
	}
	if s.User, err = c.User(ctx); err != nil {
		return Seen{}, err
	}
	if a.Power {
		// A BMC that does not answer is not MAAS's failure: the state is unknown, and is looked at again.
		if s.Power, err = c.PowerState(ctx, s.M.SystemID); err != nil {
			s.Power = "unknown"
		}
	}
	if o.erases() && p.Settings == nil {
		if p.Settings, err = c.EraseSettings(ctx); err != nil {
			return Seen{}, err
		}
	}
	if a.Events {
		if s.Events, err = c.Events(ctx, s.M.SystemID, eventsRead); err != nil {
			return Seen{}, err
		}
		if len(p.Asked) == 0 {
			p.LastEvent = newest(s.Events)
		}
	}
	p.settle(s)
	s.P = *p
	return s, nil
}

// Again reads the machine alone once more, and leaves everything else as it was seen: nothing stands between this
// answer and the request that is decided by it.
func (c *Client) Again(ctx context.Context, o Order, s Seen) (Seen, error) {
	list, err := c.Find(ctx, o.MACs)
	if err == nil {
		s.M, err = the(list, s.P.SystemID)
	}
	return s, err
}

func newest(events []Event) (id int) {
	for _, e := range events {
		id = max(id, e.ID)
	}
	return id
}

// the one machine: the one that the command is about, or the only one.
func the(list []*Machine, systemID string) (*Machine, error) {
	for _, m := range list {
		if m.SystemID == systemID {
			return m, nil
		}
	}
	switch len(list) {
	case 0:
		return nil, nil
	case 1:
		return list[0], nil
	}
	return nil, failure.Precondition("MAAS_MACHINE_AMBIGUOUS", "MAAS has %d machines with these MAC addresses: %s and %s",
		len(list),
		list[0].SystemID, list[1].SystemID)
}
