package main

import (
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/isolation/oci"
)

func TestDockerSection_OffersNothingUnasked(t *testing.T) {
	e, err := makeDocker(t.Context(), testHost(), nil)
	if e != nil || err != nil {
		t.Errorf("%v, %v", e, err)
	}
	s, err := newDockerSection(testHost(), map[string]any{})
	if err != nil || !s.asked || s.Host != "unix:///var/run/docker.sock" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestDockerSection_RefusesWhatItDoesNotKnow(t *testing.T) {
	certificates := map[string]any{"host": "unix:///run/docker.sock", "tls_ca": "/ca.pem"}
	for want, raw := range map[string]map[string]any{
		"unknown key":         {"privileged": true},
		"tls_key":             {"host": "tcp://engine.example:2376"},
		"want tcp://":         {"host": "tcp://engine.example", "tls_ca": "/a", "tls_cert": "/b", "tls_key": "/c"},
		"want unix://":        {"host": "ssh://engine.example"},
		"not absolute":        {"host": "unix://docker.sock"},
		"leave tls_* out":     certificates,
		"ready":               {"ready": -1},
		"uid_base":            {"uid_base": 65_500},
		"toml: cannot decode": {"runtime": 3},
	} {
		if _, err := newDockerSection(testHost(), raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", raw, err, want)
		}
	}
}

// TestDockerSection_IDsAreItsOwn, and no other engine's.
func TestDockerSection_IDsAreItsOwn(t *testing.T) {
	h := testHost()
	s, err := newDockerSection(h, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := newOCISection(h, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	if end := other.UIDBase + other.idsEach(h)*uint32(len(oci.Names())); s.UIDBase < end {
		t.Errorf("ids begin at %d; those of oci end at %d", s.UIDBase, end)
	}
	if end, most := s.UIDBase+4*s.sandboxes(h), h.ownership().uidBase+idsPerDaemon; end > most {
		t.Errorf("ids end at %d; the daemon's at %d", end, most)
	}
}
