// Package disk chooses the disk that a rule means, and decides beforehand whether an image fits a machine.
//
// # Overview
//
// Choose picks among the disks of a running installer. Fit answers the same question by the known facts of a machine
// that still runs its own system. It uses the same rules, so that controller and installer cannot disagree. A disk is
// never chosen by the order of discovery, because that changes with firmware, cabling and luck.
//
// # Failure handling
//
// A rule that fits no disk, or more than one, is a *NoUniqueMatch that lists every disk and why it was passed over. A
// disk that is protected, mounted or in use, read-only or removable is never chosen, whatever the rule. Fit answers nil
// where too little is known: an unknown fact is never a refusal.
package disk
