package main

import (
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation/oci"
)

func testHost() host { return host{stateDir: "/nowhere/state", sandboxes: 24} }

func TestOCISection_OffersNothingUnasked(t *testing.T) {
	s, err := newOCISection(testHost(), nil)
	if err != nil || len(s.Runtimes) != 0 {
		t.Errorf("%v, %v", s.Runtimes, err)
	}
	s, err = newOCISection(testHost(), map[string]any{})
	if err != nil || len(s.Runtimes) != len(oci.Names()) {
		t.Errorf("%v, %v", s.Runtimes, err)
	}
}

func TestOCISection_RefusesWhatItDoesNotKnow(t *testing.T) {
	for want, raw := range map[string]map[string]any{
		"kata":        {"runtimes": []string{"crun", "kata"}},
		"min_version": {"min_version": map[string]any{"rkt": "1"}},
		"programs":    {"programs": map[string]any{"rkt": "/bin/rkt"}},
		"ready":       {"ready": -1},
		"uid_base":    {"uid_base": 65_400},
		"unknown key": {"platform": "kvm"},
	} {
		if _, err := newOCISection(testHost(), raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", raw, err, want)
		}
	}
}

// TestOCISection_IDsAreEachRuntimesOwn, and no other engine's.
func TestOCISection_IDsAreEachRuntimesOwn(t *testing.T) {
	h := testHost()
	s, err := newOCISection(h, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	first := h.ownership().uidBase
	process, err := newProcessSection(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := s.UIDBase + s.idsEach(h)*uint32(len(oci.Names()))
	if s.UIDBase < process.UIDBase+h.sandboxes || end > first+idsPerDaemon {
		t.Errorf("ids %d to %d; the daemon has %d to %d, and process begins at %d", s.UIDBase, end, first, first+idsPerDaemon, process.UIDBase)
	}
}
