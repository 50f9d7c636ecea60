// Package mountns makes the root file system of a process that already is in a
// mount namespace of its own, and moves the process into it.
//
// Sources are cloned by descriptor and made read-only before they are attached
// (open_tree(2), mount_setattr(2), move_mount(2); Linux 5.12), so there is no
// moment in which they are writable. It must never be called in the host's mount
// namespace. Proven by TestEnter_ShowsNothingElse.
package mountns
