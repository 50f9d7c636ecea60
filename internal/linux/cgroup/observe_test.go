//go:build linux

package cgroup

import "testing"

func TestGroupOf(t *testing.T) {
	const v1 = "12:pids:/docker/ab\n11:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n3:cpuset:/other\n0::/init.scope\n"
	for _, c := range []struct {
		text    string
		unified bool
		want    string
	}{
		{v1, false, "/docker/ab"},
		{"0::/system.slice/docker-ab.scope\n", true, "/system.slice/docker-ab.scope"},
		{"4:memory:/docker/ab\n3:pids:/docker/other\n", false, ""},
		{"4:memory:/\n", false, ""},
		{"0::/../../docker/ab\n", true, ""},
		{"0::/docker/../ab\n", true, ""},
		{v1, true, "/init.scope"},
		{"nonsense\n", false, ""},
		{"", true, ""},
	} {
		if got, err := groupOf(c.text, c.unified); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q, unified %v: %q, %v", c.text, c.unified, got, err)
		}
	}
}
