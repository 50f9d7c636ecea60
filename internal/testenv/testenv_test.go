package testenv

import "testing"

func TestParseRelease(t *testing.T) {
	for release, want := range map[string][2]int{
		"6.18.44-fc\n":           {6, 18},
		"5.4.0-42-generic":       {5, 4},
		"6.1.0-57-cloud-amd64\n": {6, 1},
	} {
		major, minor, err := parseRelease(release)
		if err != nil || [2]int{major, minor} != want {
			t.Errorf("%q: got %d.%d, %v", release, major, minor, err)
		}
	}
	if _, _, err := parseRelease("linux"); err == nil {
		t.Error("no version was taken for one")
	}
}

func TestStrict_OnlyPrivilegedLanes(t *testing.T) {
	for lane, want := range map[string]bool{"root": true, "e2e": true, "vm": true, "": false, "unit": false} {
		if strict(lane) != want {
			t.Errorf("lane %q: strict is %v", lane, !want)
		}
	}
}

func TestListed_WholeNamesOnly(t *testing.T) {
	if !listed("cgroup,binary:crun", "binary:crun") || listed("binary:crun", "binary") || listed("", "root") {
		t.Error("a need is listed by its whole name")
	}
}
