package site

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// siteGrace is how long after the end of its last session a site may be without one: its agent restarts, or moves to
// another controller.
const siteGrace = 5 * time.Second

// Kinds of changes of a site.
const (
	siteSilent = "silent"
	siteHeard  = "heard"
)

// UpdateSites begins and ends the silence of sites. A site is silent when none of its agents is heard: each has ended
// its session, or has been silent since before silentSince. Only the time counts in which controllers listened.
func (s *Store) UpdateSites(ctx context.Context, silentSince, now time.Time) error {
	changed, err := s.db.Q.SitesToJudge(ctx, dbsqlc.SitesToJudgeParams{
		HeardSince: silentSince, SilentBefore: silentSince, EndedBefore: now.Add(-siteGrace),
	})
	if err != nil {
		return fmt.Errorf("read the agents of sites: %w", err)
	}
	for _, c := range changed {
		if c.Silent {
			err = s.beginSilence(ctx, c, silentSince, now)
		} else {
			err = s.endSilence(ctx, c.Site)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginSilence makes unknown what only the site's agents observe. Of several controllers one does it.
func (s *Store) beginSilence(ctx context.Context, c dbsqlc.SitesToJudgeRow, silentSince, now time.Time) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		n, err := q.BeginSiteSilence(ctx, dbsqlc.BeginSiteSilenceParams{Site: c.Site, HeardAt: c.HeardAt})
		if err != nil || n == 0 {
			return err
		}
		if err := silence(ctx, q, c, silentSince, now); err != nil {
			return err
		}
		return q.NoteSite(ctx, dbsqlc.NoteSiteParams{Site: c.Site, Kind: siteSilent})
	})
	if err != nil {
		return fmt.Errorf("begin the silence of site %s: %w", c.Site, err)
	}
	return nil
}

func silence(ctx context.Context, q *dbsqlc.Queries, c dbsqlc.SitesToJudgeRow, silentSince, now time.Time) error {
	faults := names(fleet.Witnessed(fleet.WitnessSite, fleet.SilenceKeeps))
	aging := append(names(fleet.Witnessed(fleet.WitnessSite, fleet.SilenceUnknown)), faults...)
	reached := names(fleet.Witnessed(fleet.WitnessMachine, fleet.SilenceUnknown))
	if err := q.MuteMachineEvents(ctx); err != nil {
		return err
	}
	ids, err := q.LockUnwitnessed(ctx, dbsqlc.LockUnwitnessedParams{Site: c.Site, SilentBefore: silentSince,
		Aging: aging, Reached: reached})
	if err != nil || len(ids) == 0 {
		return err
	}
	err = q.SilenceConditions(ctx, dbsqlc.SilenceConditionsParams{
		MachineIds: ids, Aging: aging, Reached: reached, Faults: faults, HeardAt: c.HeardAt, ObservedBy: c.ObservedBy,
		Reason:  baremetalv1.Reason_SITE_AGENT_SILENT.String(),
		Message: "agent " + c.ObservedBy + " of site " + c.Site + " is silent", Now: now,
	})
	if err != nil {
		return err
	}
	return q.SilencePower(ctx, ids)
}

// endSilence restores what the session of the site's agent attests. Conditions that the agent reads from BMCs, probes
// and providers stay unknown until it reports them again; see confirm.
func (s *Store) endSilence(ctx context.Context, site string) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		n, err := q.EndSiteSilence(ctx, site)
		if err != nil || n == 0 {
			return err
		}
		if err := q.MuteMachineEvents(ctx); err != nil {
			return err
		}
		reached := names(fleet.Witnessed(fleet.WitnessMachine, fleet.SilenceUnknown))
		ids, err := q.LockUnprobed(ctx, dbsqlc.LockUnprobedParams{Site: site, Reached: reached})
		if err != nil {
			return err
		}
		if err := q.RestoreConditions(ctx, dbsqlc.RestoreConditionsParams{MachineIds: ids, Types: reached}); err != nil {
			return err
		}
		return q.NoteSite(ctx, dbsqlc.NoteSiteParams{Site: site, Kind: siteHeard})
	})
	if err != nil {
		return fmt.Errorf("end the silence of site %s: %w", site, err)
	}
	return nil
}

// KeepSilent makes conditions unknown that have lost their witness while the site was silent already: the agent of a
// machine of its own has stopped.
func (s *Store) KeepSilent(ctx context.Context, silentSince, now time.Time) error {
	sites, err := s.db.Q.SilentSites(ctx)
	if err != nil {
		return fmt.Errorf("read silent sites: %w", err)
	}
	for _, site := range sites {
		seen, err := s.db.Q.WitnessesOfSites(ctx, []string{site.Site})
		if err != nil {
			return fmt.Errorf("read the agents of site %s: %w", site.Site, err)
		}
		for _, w := range seen {
			c := dbsqlc.SitesToJudgeRow{Site: w.Site, HeardAt: w.LastHeartbeatAt, ObservedBy: w.AgentID}
			err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return silence(ctx, q, c, silentSince, now) })
			if err != nil {
				return fmt.Errorf("keep site %s silent: %w", site.Site, err)
			}
		}
	}
	return nil
}

// confirmed is what an agent of a site reports of its machines, in columns.
type confirmed struct {
	machineIDs, types []string
	statuses          []bool
	// powerOf are machines, and powerStates their power states.
	powerOf, powerStates []string
}

// confirm makes conditions known that a report shows as they were before the silence, all at once and without an event
// for each machine. A condition that has changed meanwhile is stored as any other change is.
func (s *Store) confirm(ctx context.Context, site string, o confirmed) error {
	if len(o.machineIDs) == 0 {
		return nil
	}
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		ids, err := q.LockConfirmed(ctx, dbsqlc.LockConfirmedParams{Site: site, MachineIds: o.machineIDs, Types: o.types,
			Statuses: o.statuses})
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := q.MuteMachineEvents(ctx); err != nil {
			return err
		}
		err = q.ConfirmConditions(ctx, dbsqlc.ConfirmConditionsParams{MachineIds: ids, ObservedIds: o.machineIDs,
			Types: o.types, Statuses: o.statuses})
		if err != nil {
			return err
		}
		return q.ConfirmPower(ctx, dbsqlc.ConfirmPowerParams{MachineIds: ids, ObservedIds: o.powerOf,
			PowerStates: o.powerStates})
	})
	if err != nil {
		return fmt.Errorf("confirm what site %s reports: %w", site, err)
	}
	return nil
}

// confirmable lists what a report may confirm.
func confirmable(r SiteReport) confirmed {
	var o confirmed
	add := func(id string, t fleet.ConditionType, status bool) {
		o.machineIDs, o.types = append(o.machineIDs, id), append(o.types, string(t))
		o.statuses = append(o.statuses, status)
	}
	for _, b := range r.BMCs {
		add(b.GetMachineId(), fleet.BMCReachable, b.GetReachable())
		o.powerOf, o.powerStates = append(o.powerOf, b.GetMachineId()), append(o.powerStates, b.GetPowerState())
	}
	for _, p := range r.Probes {
		add(p.GetMachineId(), fleet.Reachable, p.GetAnswers())
	}
	return o
}

func names(types []fleet.ConditionType) []string {
	out := make([]string, 0, len(types))
	for _, t := range types {
		out = append(out, string(t))
	}
	return out
}
