package fleet

import "time"

// Freeze is why work on machines is stopped for the whole fleet. The zero value is a fleet that is not frozen.
type Freeze struct {
	Since time.Time
	// Restored: the database was restored from a backup. Otherwise an admin froze the fleet.
	Restored bool
	// WentBack: the controllers noticed that the database lacks earlier commits. Comment names them.
	WentBack bool
	// Actor is who froze the fleet, and Comment what the actor gave as the reason.
	Actor, Comment string
}

// Active reports whether the fleet is frozen.
func (f Freeze) Active() bool { return !f.Since.IsZero() }

// Cause returns who or what stopped the work, and why.
func (f Freeze) Cause() string {
	switch {
	case f.Restored:
		return "the database was restored from a backup"
	case f.WentBack:
		return "the database has gone back: " + f.Comment
	case f.Actor == "":
		return "an admin froze it"
	case f.Comment == "":
		return f.Actor + " froze it, and gave no reason"
	}
	return f.Actor + " froze it: " + f.Comment
}

// Cure is what an admin does before and for the thaw.
func (f Freeze) Cure() string {
	if f.Restored || f.WentBack {
		return "compare what agents hold with what the database knows (`ingot server info`), then lift it with `ingot " +
			"server thaw`"
	}
	return "an admin lifts it with `ingot server thaw`"
}

// Reason is the freeze's own reason: DATABASE_WENT_BACK where the controllers began it.
func (f Freeze) Reason() string {
	if f.WentBack {
		return "DATABASE_WENT_BACK"
	}
	return "FLEET_FROZEN"
}

// refusal is the answer to a request for work while the fleet is frozen.
func (f Freeze) refusal() *Refusal {
	return &Refusal{"FLEET_FROZEN", "the fleet is frozen since " + f.Since.UTC().Format(time.RFC3339) + ": " + f.Cause() +
		"; " + f.Cure()}
}
