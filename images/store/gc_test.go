package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// several imports images named a, b, c, each used an hour before the next.
func several(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	for i, name := range []string{"a", "b", "c"} {
		r := s.mustImport(t, name, pythonTree(t).with(func(m tree) { m["opt/data"] = name }))
		s.index.Used[r.Digest] = now().Add(time.Duration(i-3) * time.Hour)
	}
	return s
}

func names(records []Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, r.Names...)
	}
	return out
}

func TestGC_KeepsWhatIsInUse(t *testing.T) {
	size := int64(0)
	for title, c := range map[string]struct {
		policy Policy
		use    string
		want   []string // removed, in order
	}{
		"nothing asked":         {Policy{}, "", []string{}},
		"by age":                {Policy{UnusedFor: 90 * time.Minute}, "", []string{"a", "b"}},
		"by age, one in use":    {Policy{UnusedFor: 90 * time.Minute}, "a", []string{"b"}},
		"by age, one kept":      {Policy{UnusedFor: time.Minute, Keep: []string{"b", "no such"}}, "", []string{"a", "c"}},
		"by size":               {Policy{Bytes: 2}, "", []string{"a"}},
		"by size, all":          {Policy{Bytes: 1}, "c", []string{"a", "b"}},
		"by size, oldest held":  {Policy{Bytes: 2}, "a", []string{"b"}},
		"by age and then size":  {Policy{UnusedFor: 150 * time.Minute, Bytes: 1}, "", []string{"a", "b"}},
		"nothing needs removal": {Policy{UnusedFor: 9 * time.Hour, Bytes: 3}, "", []string{}},
	} {
		t.Run(title, func(t *testing.T) {
			s := several(t)
			for _, r := range s.images {
				size = r.Bytes
			}
			c.policy.Bytes *= size
			if c.use != "" {
				use, err := s.Acquire(c.use)
				if err != nil {
					t.Fatal(err)
				}
				defer use.Release()
			}
			removed, err := s.GC(t.Context(), c.policy)
			if got := names(removed); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("removed %v, %v", got, err)
			}
			trees, err := os.ReadDir(filepath.Join(s.dir, treesDir))
			if err != nil || len(trees) != 3-len(c.want) || len(leftovers(t, s)) > 0 || len(s.List()) != len(trees)+1 {
				t.Errorf("left %v, %v", trees, err)
			}
			for _, name := range c.want {
				if _, err := s.Acquire(name); sandbox.KindOf(err) != sandbox.KindNotFound {
					t.Errorf("%s: got %v", name, err)
				}
			}
		})
	}
}

func TestRemove_NamesThenImage(t *testing.T) {
	s := newStore(t)
	r := s.mustImport(t, "a", pythonTree(t))
	s.mustImport(t, "b", pythonTree(t))
	if err := s.Remove("a"); err != nil {
		t.Fatal(err)
	}
	use, err := s.Acquire("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(r.Digest); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Inspect("b"); got.InUse != 2 {
		t.Errorf("in use %d", got.InUse)
	}
	for _, reference := range []string{"b", r.Digest} {
		if err := s.Remove(reference); sandbox.KindOf(err) != sandbox.KindConflict {
			t.Errorf("in use: got %v", err)
		}
	}
	use.Release()
	use.Release() // once is enough
	if got, _ := s.Inspect("b"); got.InUse != 1 {
		t.Errorf("in use %d", got.InUse)
	}
	s.uses = map[string]int{}
	if err := s.Remove(r.Digest); err != nil {
		t.Fatal(err)
	}
	for reference, kind := range map[string]sandbox.Kind{"b": sandbox.KindNotFound, "": sandbox.KindNotFound, "host": sandbox.KindConflict, "sha256:": sandbox.KindNotFound} {
		if err := s.Remove(reference); sandbox.KindOf(err) != kind {
			t.Errorf("%q: got %v", reference, err)
		}
	}
	if len(s.index.Names)+len(s.index.Used) > 0 {
		t.Errorf("the index keeps %+v", s.index)
	}
}

func TestHost_IsOneOfTheImages(t *testing.T) {
	s := newStore(t)
	r, err := s.Inspect("host")
	if err != nil || r.Digest != "sha256:host" || r.PythonVersion != "3.11.2" || s.List()[0].Digest != r.Digest {
		t.Errorf("%+v, %v", r, err)
	}
	use, err := s.Acquire("host")
	if err != nil || use.Image != s.cfg.Host {
		t.Fatalf("%+v, %v", use, err)
	}
	if r, _ := s.Inspect("host"); r.InUse != 1 {
		t.Errorf("in use %d", r.InUse)
	}
	use.Release()
	if removed, err := s.GC(t.Context(), Policy{UnusedFor: 1, Bytes: 1}); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// TestGC_AgainstUses: whoever holds an image sees its tree, whatever is collected
// and imported meanwhile.
func TestGC_AgainstUses(t *testing.T) {
	s := newStore(t)
	archive := pythonTree(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := s.GC(t.Context(), Policy{UnusedFor: 1}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 10 {
		r := s.mustImport(t, "a", archive)
		use, err := s.Acquire(r.Digest)
		if sandbox.KindOf(err) == sandbox.KindNotFound {
			continue // collected in between
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range use.Image.Binds {
			if _, err := os.Stat(b.Source); err != nil {
				t.Error(fmt.Errorf("in use: %w", err))
			}
		}
		use.Release()
	}
	close(stop)
	wg.Wait()
}
