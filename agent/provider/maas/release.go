package maas

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// syncGrace is how late a hardware sync may be.
const syncGrace = 5 * time.Minute

func itoa(n int) string { return strconv.Itoa(n) }

func pick(from map[string]string, keys ...string) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		if from[k] != "" {
			out[k] = from[k]
		}
	}
	return out
}

// linkVerb is LinkAuto of one interface: each is asked for once.
func linkVerb(nic int) Verb { return LinkAuto + Verb("/"+itoa(nic)) }

// Kind is the verb without what it is about.
func (v Verb) Kind() Verb {
	kind, _, _ := strings.Cut(string(v), "/")
	return Verb(kind)
}

// erases reports whether the order is to erase the disks.
func (o Order) erases() bool { return o.Action == "erase" || o.Action == "release" && o.on("erase") }

func decideErase(o Order, s Seen) Next {
	o.Params = maps.Clone(o.Params)
	if o.Params == nil {
		o.Params = map[string]string{}
	}
	o.Params["erase"] = "true"
	if o.Params["secure_erase"] == "" && !o.on("quick_erase") {
		o.Params["secure_erase"] = "true"
	}
	return decideRelease(o, s)
}

// decideRelease: the machine is Ready again; where disks must be erased, MAAS was seen to do that after our request.
func decideRelease(o Order, s Seen) Next {
	if s.P.asked(Release) {
		return afterRelease(o, s)
	}
	m, erase := s.M, o.on("erase")
	switch {
	case m.Locked:
		return conflict(s, "it is locked there; unlock it in MAAS first")
	case erase && s.P.Settings.quickly() && !o.quickly():
		return fail("MAAS_REFUSED", false,
			"the region erases whatever it releases, and quickly: its setting disk_erase_with_quick_erase "+
				"replaces what is asked for; switch it off")
	case m.is(ms.FailedTesting) && m.OSystem != "":
		return conflict(s, "MAAS releases nothing whose tests have failed; override_failed_testing comes first")
	case m.is(ms.New, ms.Ready, ms.FailedCommissioning, ms.FailedTesting) && !erase:
		return done(s, map[string]string{"maas_released": "already"})
	case m.is(ms.Ready) && erase && !s.P.asked(Allocate) && erasedAndLeft(s.Events):
		// Whichever of the two it was: the region's settings may have been others.
		return done(s, map[string]string{"maas_released": "already", evidence.EraseMethod: eraseMethod(true)})
	case m.is(ms.Ready):
		// MAAS erases a machine as it releases it: a free machine is allocated for that.
		return decideAllocate(o, s)
	case m.is(ms.Releasing, ms.DiskErasing):
		return wait("MAAS to release the machine")
	case m.is(ms.Allocated) && s.P.asked(Allocate) && !o.ours(m):
		return decideAllocate(o, s)
	case m.is(ms.Allocated, ms.Reserved, ms.Deployed, ms.Deploying, ms.FailedDeployment, ms.Broken, ms.FailedReleasing,
		ms.FailedDiskErasing):
		comment := "ingot " + o.Operation
		if o.on("secure_erase") && !o.on("quick_erase") {
			comment += fully
		}
		return do(Release, with(pick(o.Params, "erase", "secure_erase", "quick_erase"), "comment", comment))
	}
	return conflict(s, "it is not released from there; bring it to Ready in MAAS first")
}

// fully marks in MAAS's log the requests for an erasure of which no part may be left out.
const fully = ", erases fully"

// erasedAndLeft reports whether the last that anybody asked for of a machine is an erasure of ours, and MAAS has
// seen it done: a command before this one had no time to see that. Newer events are of MAAS and of the machine itself.
func erasedAndLeft(events []Event) bool {
	done := false
	for _, e := range events {
		switch {
		case e.Type == disksErased, e.Type == scriptsRan:
			done = true
		case strings.HasSuffix(e.Description, fully):
			return done
		case e.Type == "User releasing node" && e.Description == "": // MAAS itself, once the disks are erased
		case strings.HasPrefix(e.Type, "User ") && e.Type != "User powering down node":
			return false
		}
	}
	return false
}

func with(m map[string]string, key, value string) map[string]string {
	m[key] = value
	return m
}

func afterRelease(o Order, s Seen) Next {
	m := s.M
	switch {
	case m.is(ms.Releasing, ms.DiskErasing):
		return wait("MAAS, which says " + m.StatusName)
	case m.is(ms.Ready, ms.New), moved(s, "Ready", "New"): // or it was, and another client has it by now
		return released(o, s)
	case m.is(ms.FailedReleasing, ms.FailedDiskErasing) && (!s.P.Open(Release) || moved(s, "Disk erasing", "Releasing")):
		return failedThere(s)
	case m.Status == s.P.Asked[Release].Was && moved(s, "Releasing", "Disk erasing"):
		return putBack(s)
	}
	return wait("MAAS to begin to release the machine")
}

// quickly reports whether the order is content with a quick erase.
func (o Order) quickly() bool { return o.on("quick_erase") && !o.on("secure_erase") }

// quickly reports whether the region's own settings let a disk get away with its ends overwritten: a disk that has no
// secure erase is erased quickly where both are on (maas/maas,
// metadataserver/builtin_scripts/release_scripts/maas_wipe.py).
func (e *EraseSettings) quickly() bool { return e != nil && e.OnRelease && e.Quick }

// What MAAS logs when the machine itself has said that its disks are erased: of an erasure by itself, and of one among
// other scripts. With the region's setting to erase on release, what we ask for is the second of two, and shows as the
// latter.
const (
	disksErased = "Disks erased"
	scriptsRan  = "Release scripts executed successfully."
)

// released: a machine that is Ready has had its disks erased only if MAAS was seen to erase them.
func released(o Order, s Seen) Next {
	switch {
	case !o.on("erase"):
		return done(s, map[string]string{"maas_released": "true"})
	case o.quickly():
		return done(s, map[string]string{"maas_released": "true", "maas_erase": "quick, not verified"})
	case s.P.Erasing || moved(s, "Disk erasing") || since(s, s.P.LastEvent, disksErased):
		return done(s, map[string]string{"maas_released": "true", evidence.EraseMethod: eraseMethod(o.on("secure_erase"))})
	case since(s, s.P.LastEvent, scriptsRan) && s.P.Settings != nil && s.P.Settings.OnRelease:
		return done(s, map[string]string{"maas_released": "true", evidence.EraseMethod: eraseMethod(s.P.Settings.Secure)})
	case s.P.Open(Release):
		return Next{
			Unknown: "the machine is Ready, and MAAS does not show that its disks were erased after the request, whose answer " +
				"was lost"}
	}
	return fail("MAAS_FAILED", false, "MAAS has released the machine without erasing its disks")
}

// eraseMethod returns the method that MAAS documents: a disk without a secure erase, or whose secure erase fails, is
// overwritten.
func eraseMethod(secure bool) string {
	if secure {
		return "maas-secure-erase-or-overwrite"
	}
	return "maas-overwrite"
}

// moved reports whether MAAS's own log shows a change to one of the statuses after our first request.
func moved(s Seen, to ...string) bool {
	for _, e := range s.Events {
		if e.ID <= s.P.LastEvent {
			continue
		}
		for _, name := range to {
			if strings.HasSuffix(e.Description, "to '"+name+"'") {
				return true
			}
		}
	}
	return false
}
