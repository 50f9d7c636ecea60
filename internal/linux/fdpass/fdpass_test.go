//go:build linux

package fdpass_test

import (
	"io"
	"os"
	"testing"

	"github.com/sandboxd/sandboxd/internal/linux/fdpass"
)

// otherEnd makes a Conn of the end that a process would get.
func pairOfConns(t *testing.T) (near, far *fdpass.Conn) {
	t.Helper()
	near, file, err := fdpass.Pair()
	if err != nil {
		t.Fatal(err)
	}
	far, err = fdpass.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near, far
}

func TestConn_CarriesDescriptors(t *testing.T) {
	near, far := pairOfConns(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := near.Send([]byte("take this"), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	message, files, err := far.Receive()
	if err != nil || string(message) != "take this" || len(files) != 1 {
		t.Fatalf("got %q, %d files, %v", message, len(files), err)
	}
	if _, err := files[0].WriteString("through it"); err != nil {
		t.Fatal(err)
	}
	if err := files[0].Close(); err != nil {
		t.Fatal(err)
	}
	// The end of the stream proves that no copy of the descriptor was left open.
	if got, err := io.ReadAll(r); err != nil || string(got) != "through it" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestConn_KeepsMessageBorders(t *testing.T) {
	near, far := pairOfConns(t)
	for _, text := range []string{"one", "two"} {
		if err := near.Send([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"one", "two"} {
		if got, _, err := far.Receive(); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestConn_RefusesCutMessage(t *testing.T) {
	near, far := pairOfConns(t)
	if err := near.Send(make([]byte, fdpass.MaxMessage+1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := far.Receive(); err == nil {
		t.Error("a message over the maximum was taken for whole")
	}
}

func TestConn_EndOfPeerIsAnError(t *testing.T) {
	near, far := pairOfConns(t)
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := far.Receive(); err == nil {
		t.Error("receiving from a closed peer gave no error")
	}
}
