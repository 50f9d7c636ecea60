// Package mountns makes root file systems in mount namespaces other than the
// host's: for a process that already is in one of its own and moves into the root
// (Enter), or in a second namespace of this process, from which others are
// started (Apart).
//
// Sources are cloned by descriptor and made read-only before they are attached
// (open_tree(2), mount_setattr(2), move_mount(2); Linux 5.12), so there is no
// moment in which they are writable. It must never mount or unmount anything in
// the host's mount namespace. Proven by TestEnter_ShowsNothingElse and
// TestApart_LeavesTheHostAlone.
package mountns
