package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// importForever imports images and removes them, until it is killed. It says
// when it begins.
func importForever(dir, archive string) int {
	s, err := Open(config(dir))
	if err != nil {
		fmt.Println("open:", err) //nolint:forbidigo // the killed process has nothing else
		return 1
	}
	fmt.Println("begin") //nolint:forbidigo // as said
	for i := 0; ; i++ {
		r, err := s.Import(context.Background(), Request{Name: fmt.Sprintf("n%d", i%3), Path: archive})
		if err == nil && i%2 == 1 {
			err = s.Remove(r.Digest)
		}
		if err != nil {
			fmt.Println("import:", err) //nolint:forbidigo // as said
			return 1
		}
	}
}

// kills is at how many points the import is killed.
const kills = 20

func TestImport_IsWholeAfterKills(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	m := pythonTree(t).with(func(m tree) {
		for i := range 120 {
			m[fmt.Sprintf("usr/share/d%d/f", i)] = string(bytes.Repeat([]byte{byte(i)}, 4000))
		}
	})
	if err := os.WriteFile(archive, m.tar(t), 0o600); err != nil {
		t.Fatal(err)
	}
	// How long one import and removal take says where to kill.
	cfg := config(t.TempDir())
	s := openStore(t, cfg)
	began := time.Now()
	r := s.mustImport(t, "", m)
	took := time.Since(began)
	dir := filepath.Join(t.TempDir(), "images")
	whole, midway := 0, 0
	for i := range kills {
		left := killed(t, dir, archive, rand.N(2*took+time.Millisecond))
		s := openStore(t, config(dir))
		for _, found := range s.List()[1:] {
			whole++
			if found.Digest != r.Digest {
				t.Errorf("kill %d: another image %s", i, found.Digest)
			}
			if err := s.Verify(t.Context(), found.Digest); err != nil {
				t.Errorf("kill %d: %v", i, err)
			}
		}
		if left > 0 {
			midway++
		}
		trees, err := os.ReadDir(filepath.Join(dir, treesDir))
		if err != nil || len(trees) != len(s.List())-1 || len(leftovers(t, s)) > 0 {
			t.Errorf("kill %d: trees %v, left %v, %v", i, trees, leftovers(t, s), err)
		}
		if _, err := s.Import(t.Context(), Request{Name: "after", Path: archive}); err != nil {
			t.Errorf("kill %d: import again: %v", i, err)
		}
		if i%2 == 0 {
			if err := s.Remove(r.Digest); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("of %d kills %d came amid an import or a removal, %d images were there and whole", kills, midway, whole)
	if midway < kills/4 {
		t.Errorf("only %d of %d kills came amid an import", midway, kills)
	}
}

// killed imports in another process, kills it after a while and tells how many
// leftovers there are.
func killed(t *testing.T, dir, archive string, after time.Duration) int {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "STORE_TEST_IMPORT="+dir, "STORE_TEST_ARCHIVE="+archive)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "begin\n" {
		t.Fatalf("said %q, %v", line[:n], err)
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	entries, err := os.ReadDir(filepath.Join(dir, tmpDir))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
