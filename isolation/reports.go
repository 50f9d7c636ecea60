package isolation

import (
	"errors"
	"os"

	"github.com/sandboxd/sandboxd/sandbox"
)

// InOrder lists reports as layers are shown. A layer that nobody spoke of is
// missing.
func InOrder(byLayer map[sandbox.Layer]sandbox.LayerReport) []sandbox.LayerReport {
	var out []sandbox.LayerReport
	for _, l := range sandbox.Layers() {
		r, ok := byLayer[l]
		if !ok {
			r = sandbox.LayerReport{Layer: l, State: sandbox.LayerMissing, Reason: "not probed"}
		}
		out = append(out, r)
	}
	return out
}

// RootNeeded is what to do on most hosts that can make no sandbox.
const RootNeeded = "run as root on Linux 5.12 or newer with user namespaces enabled"

// NoneHeld reports on every layer where no sandbox could be made to look at: all
// are missing for one reason. mend is for an error that brings none of its own.
func NoneHeld(err error, mend string) []sandbox.LayerReport {
	if known, ok := errors.AsType[*sandbox.Error](err); ok && known.Mend != "" {
		mend = known.Mend
	}
	var out []sandbox.LayerReport
	for _, l := range sandbox.Layers() {
		out = append(out, sandbox.LayerReport{
			Layer: l, State: sandbox.LayerMissing, Reason: "no sandbox could be made: " + err.Error(), Mend: mend,
		})
	}
	return out
}

// OwnNamespaces are the daemon's, in the kernel's words.
func OwnNamespaces() map[string]string {
	own, _ := NamespacesOf("self")
	return own
}

// NamespacesOf names those of a process (namespaces(7)).
func NamespacesOf(pid string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		link, err := os.Readlink("/proc/" + pid + "/ns/" + name)
		if err != nil {
			return nil, err
		}
		out[name] = link
	}
	return out, nil
}
