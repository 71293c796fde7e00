package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Array is one software RAID of the running system (Linux md).
type Array struct {
	Name  string `json:"name"`  // kernel name, such as md127
	Level string `json:"level"` // such as raid1; empty before it is started
	// Disks is how many disks the array is made of, and Missing how many of them it runs without.
	Disks   int `json:"disks"`
	Missing int `json:"missing"`
	// Active: the array runs.
	Active bool `json:"active"`
	// Rebuilding: missing data is being written to a disk.
	Rebuilding bool     `json:"rebuilding,omitempty"` // volatile
	Members    []string `json:"members"`              // kernel names of its disks or partitions, volatile
}

// Fault describes the defect of the array in one line, for a condition's message. It is empty for a whole array.
func (a Array) Fault() string {
	switch {
	case !a.Active:
		return a.Name + " is not running"
	case a.Missing > 0 && a.Rebuilding:
		return fmt.Sprintf("%s (%s) lacks %d of %d disks and is being rebuilt", a.Name, a.Level, a.Missing, a.Disks)
	case a.Missing > 0:
		return fmt.Sprintf("%s (%s) lacks %d of %d disks", a.Name, a.Level, a.Missing, a.Disks)
	}
	return ""
}

// Arrays reads the software RAID of the system below a root directory; "" is the root directory.
func Arrays(root string) []Array {
	return collector{root: rootOr(root), missing: map[string]string{}}.arrays()
}

// arrays reads the attributes of md devices in sysfs (Linux, Documentation/admin-guide/md.rst).
func (c collector) arrays() []Array {
	var all []Array
	for _, name := range c.names("sys/block") {
		dir := "sys/block/" + name + "/md/"
		if !c.exists(dir) {
			continue
		}
		a := Array{Name: name, Level: c.text(dir + "level"), Members: c.arrayMembers(dir)}
		// A container only holds metadata for other arrays. A node without members is left of an array that was stopped.
		if a.Level == "container" || len(a.Members) == 0 {
			continue
		}
		a.Active = !slices.Contains([]string{"", "clear", "inactive", "broken"}, c.text(dir+"array_state"))
		a.Missing, a.Rebuilding = int(c.number(dir+"degraded")), c.text(dir+"sync_action") == "recover"
		// While the shape is being changed, the number before it follows in brackets.
		disks, _, _ := strings.Cut(c.text(dir+"raid_disks"), " ")
		a.Disks, _ = strconv.Atoi(disks) // there is none before an array is started
		all = append(all, a)
	}
	return all
}

func (c collector) arrayMembers(dir string) []string {
	var members []string
	for _, entry := range c.names(dir) {
		if member, ok := strings.CutPrefix(entry, "dev-"); ok {
			members = append(members, member)
		}
	}
	return members
}
