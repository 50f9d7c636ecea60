// Package cgroup makes, limits, measures, kills and removes the control groups
// of sandboxes, on cgroup v1, v2 and the hybrid of both.
//
// It owns one directory of the daemon's own (Config.Parent) in each hierarchy and
// everything below it. It must never touch a group elsewhere, never signal a
// process by number alone, and never leave a limit unset because the kernel has
// no file for it: what can't be enforced is an error of [Manager.Create] and a
// finding of [Manager.Probe].
//
// Modes and limits go through containerd/cgroups. Attaching, counters, killing
// and removing are done here: they are on the path of every run, where the
// library opens about thirty files for statistics, sleeps while removing, and
// moves processes by pid, which on v1 waits for a grace period of milliseconds.
//
// On a host run by systemd, give the daemon's unit Delegate=yes and
// DelegateSubgroup=, and use a Parent inside the unit's group: v2 lets a group
// hand controllers down only while no process sits in it
// (Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint").
//
// A Manager has no lock: groups of different names are independent. A Group may
// be read and killed from several goroutines; Reset, Update and Delete belong to
// its owner.
//
// Proven by the root-lane tests in group_root_test.go: the kernel kills a memory
// hog and counts it, stops forks at the limit, and nothing is left behind.
package cgroup
