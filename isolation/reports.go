package isolation

import (
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
