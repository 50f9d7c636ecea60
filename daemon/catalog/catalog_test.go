package catalog_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/daemontest"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

func open(t *testing.T, cfg catalog.Config, store catalog.Store) *catalog.Catalog {
	t.Helper()
	if cfg.ImportTime == 0 {
		cfg.ImportTime = time.Minute
	}
	c, err := catalog.New(cfg, store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func root() tenants.Caller { return tenants.Caller{} }

func pull(reference string) catalog.Order {
	return catalog.Order{ImageRequest: sandbox.ImageRequest{Source: sandbox.ImageRegistry, Reference: reference, Name: "new"}}
}

func nothing(sandbox.ImageProgress) {}

// archive is text that arrives.
type archive struct{ io.Reader }

func (archive) Interrupt() {}

func TestManage_IsForManagers(t *testing.T) {
	for _, c := range []struct {
		title  string
		caller tenants.Caller
		may    bool
	}{
		{"root", tenants.Caller{UID: 0, GID: 0}, true},
		{"manager by user", tenants.Caller{UID: 1000, GID: 7}, true},
		{"manager by group", tenants.Caller{UID: 1001, GID: 50}, true},
		{"other user", tenants.Caller{UID: 1001, GID: 1001}, false},
		{"group id of a manager's user id", tenants.Caller{UID: 1001, GID: 1000}, false},
		{"user id of a manager's group id", tenants.Caller{UID: 50, GID: 1001}, false},
		{"group of root", tenants.Caller{UID: 1001, GID: 0}, false},
	} {
		t.Run(c.title, func(t *testing.T) {
			cat := open(t, catalog.Config{ManagerUIDs: []uint32{1000}, ManagerGIDs: []uint32{50}}, daemontest.NewImages("old"))
			_, importErr := cat.Import(t.Context(), c.caller, pull("image"), nothing)
			_, collectErr := cat.Collect(t.Context(), c.caller, catalog.Garbage{})
			for call, err := range map[string]error{
				"import": importErr, "collect": collectErr,
				"archive": cat.CheckArchive(c.caller, 5), "remove": cat.Remove(t.Context(), c.caller, "old"),
			} {
				if (err == nil) != c.may || (!c.may && sandbox.KindOf(err) != sandbox.KindDenied) {
					t.Errorf("%s: %v", call, err)
				}
			}
			_, newErr := cat.Inspect("new")
			_, oldErr := cat.Inspect("old")
			if (newErr == nil) != c.may || (oldErr != nil) != c.may {
				t.Errorf("new image: %v, old image: %v", newErr, oldErr)
			}
		})
	}
}

func TestHold_ObeysAllowed(t *testing.T) {
	for _, c := range []struct {
		title     string
		allowed   []string
		fallback  string
		reference string
		kind      sandbox.Kind // empty: held
	}{
		{"all", nil, "", "a/x:1", ""},
		{"listed", []string{"a/x:1"}, "", "a/x:1", ""},
		{"pattern", []string{"a/*"}, "", "a/x:1", ""},
		{"pattern of another level", []string{"a*"}, "", "a/x:1", sandbox.KindDenied},
		{"not listed", []string{"b"}, "", "a/x:1", sandbox.KindDenied},
		{"listed by name, named by digest", []string{"a/x:1"}, "", daemontest.DigestOf("a/x:1"), ""},
		{"not listed, named by digest", []string{"b"}, "", daemontest.DigestOf("a/x:1"), sandbox.KindDenied},
		{"listed by digest", []string{daemontest.DigestOf("a/x:1")}, "", "a/x:1", ""},
		{"none", []string{}, "", "a/x:1", sandbox.KindDenied},
		{"none, but the default", []string{}, "a/x:1", "a/x:1", ""},
		{"none, and nothing named", []string{}, "a/x:1", "", ""},
		{"none, and the host is the default", []string{}, "", "host", ""},
		{"none, and the host is not the default", []string{}, "b", "host", sandbox.KindDenied},
		{"unknown", nil, "", "nope", sandbox.KindInvalid},
		{"default that is not stored", nil, "nope", "", sandbox.KindUnavailable},
	} {
		t.Run(c.title, func(t *testing.T) {
			images := daemontest.NewImages("a/x:1", "b")
			cat := open(t, catalog.Config{Default: c.fallback, Allowed: c.allowed}, images)
			_, release, err := cat.Hold(c.reference)
			switch {
			case c.kind == "" && err != nil, c.kind != "" && sandbox.KindOf(err) != c.kind:
				t.Fatalf("got %v, want %q", err, c.kind)
			case err == nil:
				release()
			}
			if _, now := images.Uses(); now != 0 {
				t.Errorf("%d images are held", now)
			}
		})
	}
}

// TestHold_NamesWhatIsThere, and not what the caller may not have.
func TestHold_NamesWhatIsThere(t *testing.T) {
	cat := open(t, catalog.Config{Allowed: []string{"a"}}, daemontest.NewImages("a", "b"))
	_, _, err := cat.Hold("c")
	if err == nil || !strings.Contains(err.Error(), `image: no image is called "c"; known: host, a`) || strings.Contains(err.Error(), "b") {
		t.Error(err)
	}
}

func TestHold_WithoutAStore(t *testing.T) {
	cat := open(t, catalog.Config{}, nil)
	for reference, kind := range map[string]sandbox.Kind{"": "", "host": "", "x": sandbox.KindInvalid} {
		image, release, err := cat.Hold(reference)
		if (err == nil) != (kind == "") || (err != nil && sandbox.KindOf(err) != kind) || image.Digest != "" {
			t.Errorf("%q: %+v, %v", reference, image, err)
		}
		if err == nil {
			release()
		}
	}
}

func TestImport_OneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cat := open(t, catalog.Config{}, daemontest.NewImages())
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := cat.Import(ctx, root(), pull("hang"), nothing)
			first <- err
		}()
		synctest.Wait()
		if _, err := cat.Import(t.Context(), root(), pull("image"), nothing); sandbox.KindOf(err) != sandbox.KindExhausted {
			t.Errorf("second import: %v", err)
		}
		if err := cat.CheckArchive(root(), 5); sandbox.KindOf(err) != sandbox.KindExhausted {
			t.Errorf("archive: %v", err)
		}
		cancel()
		if err := <-first; sandbox.KindOf(err) != sandbox.KindCanceled {
			t.Errorf("caller left: %v", err)
		}
		if _, err := cat.Import(t.Context(), root(), pull("image"), nothing); err != nil {
			t.Errorf("after that: %v", err)
		}
		if err := cat.CheckArchive(root(), 1<<20+1); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("large archive: %v", err)
		}
	})
}

func TestImport_EndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cat := open(t, catalog.Config{ImportTime: time.Hour}, daemontest.NewImages())
		began := time.Now()
		_, err := cat.Import(t.Context(), root(), pull("hang"), nothing)
		if sandbox.KindOf(err) != sandbox.KindInvalid || !strings.Contains(err.Error(), "import_ms") || time.Since(began) != time.Hour {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestStop_EndsTheImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cat := open(t, catalog.Config{Unused: time.Hour}, daemontest.NewImages())
		cat.Keep()
		ended := make(chan error, 1)
		go func() {
			_, err := cat.Import(t.Context(), root(), pull("hang"), nothing)
			ended <- err
		}()
		synctest.Wait()
		cat.Stop()
		if err := <-ended; sandbox.KindOf(err) != sandbox.KindUnavailable {
			t.Errorf("under way: %v", err)
		}
		if _, err := cat.Import(t.Context(), root(), pull("image"), nothing); sandbox.KindOf(err) != sandbox.KindUnavailable {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestCollect_KeepsWhatIsNamed by the configuration or held by a run, whoever
// collects.
func TestCollect_KeepsWhatIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		images := daemontest.NewImages("default", "listed", "held", "pattern1", "other")
		cat := open(t, catalog.Config{Default: "default", Allowed: []string{"listed", "hel[d]", "pattern*"}, Unused: time.Hour}, images)
		_, release, err := cat.Hold("held")
		if err != nil {
			t.Fatal(err)
		}
		cat.Keep()
		synctest.Wait()
		var left []string
		for _, e := range cat.List() {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, []string{"host", "default", "listed", "held"}) {
			t.Errorf("left: %v", left)
		}
		release()
		removed, err := cat.Collect(t.Context(), root(), catalog.Garbage{UnusedFor: time.Hour})
		if err != nil || len(removed) != 1 || removed[0].Name() != "held" {
			t.Errorf("removed %v, %v", removed, err)
		}
		cat.Stop()
	})
}

func TestList_TellsWhatRunsMayName(t *testing.T) {
	cat := open(t, catalog.Config{Default: "a", Allowed: []string{"b"}}, daemontest.NewImages("a", "b", "c"))
	got := map[string][2]bool{}
	for _, e := range cat.List() {
		got[e.Name()] = [2]bool{e.Default, e.Allowed}
	}
	for name, want := range map[string][2]bool{"host": {false, false}, "a": {true, true}, "b": {false, true}, "c": {false, false}} {
		if got[name] != want {
			t.Errorf("%s: default and allowed %v, want %v", name, got[name], want)
		}
	}
}

func TestImport_TakesArchives(t *testing.T) {
	cat := open(t, catalog.Config{}, daemontest.NewImages())
	o := catalog.Order{ImageRequest: sandbox.ImageRequest{Name: "x"}, Archive: archive{strings.NewReader("content")}}
	e, err := cat.Import(t.Context(), root(), o, nothing)
	if err != nil || e.Digest != daemontest.DigestOf("content") || e.Name() != "x" || !e.Allowed {
		t.Errorf("%+v, %v", e, err)
	}
}
