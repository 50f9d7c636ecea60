package oci

import (
	"slices"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]version{
		"runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev": {1, 1, 5},
		"runc version 1.3.0-rc.1":                          {1, 3, 0},
		"crun version 1.8.1\ncommit: f8a096be":             {1, 8, 1},
		"crun version 1.20":                                {1, 20, 0},
		"runsc version 0.0~20221219.0\nspec: 1.0.2-dev":    {20221219, 0},
		"runsc version release-20240212.0\nspec: 1.1.0-rc": {20240212, 0},
		"20221219": {20221219, 0},
	} {
		if got, err := parseVersion(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "runc", "runc version unknown\nspec: 1.0.2"} {
		if got, err := parseVersion(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRuntimes_AreWhatNamesSays(t *testing.T) {
	if len(runtimes()) != len(Names()) {
		t.Errorf("%d runtimes, %d names", len(runtimes()), len(Names()))
	}
	for _, name := range Names() {
		r, err := traitsOf(name)
		if err != nil {
			t.Error(err)
		}
		if _, err := parseVersion(r.least); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
