//go:build linux

package pipes_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxd/sandboxd/internal/linux/pipes"
)

func TestPipes_CarryBothWays(t *testing.T) {
	for name, c := range map[string]struct {
		make func() (near, far *os.File, err error)
		flip bool
	}{"reading": {pipes.Reading, false}, "writing": {pipes.Writing, true}} {
		near, far, err := c.make()
		if err != nil {
			t.Fatal(err)
		}
		r, w := near, far
		if c.flip {
			r, w = far, near
		}
		if _, err := w.WriteString("through"); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "through" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		_ = r.Close()
	}
}

func TestMemory_IsFinalOnceSealed(t *testing.T) {
	m, err := pipes.NewMemory("stdin")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := m.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := io.WriteString(m, "input"); err != nil {
		t.Fatal(err)
	}
	if err := m.Seal(); err != nil {
		t.Fatal(err)
	}
	// The position was left at the beginning.
	if got, err := io.ReadAll(reader); err != nil || string(got) != "input" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := reader.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a sealed file took a write: %v", err)
	}
}

func TestSigned_NamesTheWriter(t *testing.T) {
	near, far, err := pipes.Signed()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if _, err := far.WriteString("it is me"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, pid, err := pipes.ReadSigned(near, buf)
	if err != nil || string(buf[:n]) != "it is me" || pid != os.Getpid() {
		t.Errorf("%q from %d, %v", buf[:n], pid, err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := pipes.ReadSigned(near, buf); n != 0 || (err != nil && !errors.Is(err, io.EOF)) {
		t.Errorf("after the end: %d, %v", n, err)
	}
}
