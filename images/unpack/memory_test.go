package unpack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sandbox"
)

// TestTree_HoldsNoHeaders: names are copied out of headers, each of which may be
// as large as the tar reader allows.
func TestTree_HoldsNoHeaders(t *testing.T) {
	const headers, most = 16, 4 << 20
	big := map[string]string{"TEST.padding": strings.Repeat("x", 900<<10)}
	var members []member
	for i := range headers {
		// Letters beyond ASCII bring name and target into the large header.
		name := fmt.Sprintf("é%d", i)
		m := symlink(name, "é")
		if i%2 == 0 {
			m = file(name, "")
		}
		members = append(members, m.with(func(h *tar.Header) { h.PAXRecords, h.Format = big, tar.FormatPAX }))
	}
	data := archive(t, members...)
	limits := small()
	limits.Bytes = 1 << 30 // and with it the stream
	tree, _ := newTree(t, limits)
	before := heap()
	if err := tree.Layer(t.Context(), bytes.NewReader(data), false); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d entries hold %d bytes", headers, grown)
	}
	runtime.KeepAlive(tree)
	runtime.KeepAlive(data)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

func TestTree_BoundsItsAccount(t *testing.T) {
	tree, _ := newTree(t, small())
	tree.text = maxText - 10
	apply(t, tree, false, file("short", ""))
	err := tree.Layer(t.Context(), bytes.NewReader(archive(t, symlink("l", "long-target"))), false)
	if sandbox.KindOf(err) != sandbox.KindInvalid || !strings.Contains(err.Error(), `member "l"`) {
		t.Errorf("got %v", err)
	}
}

// TestTree_PrunesOnceForALayer: marks repeated by a hostile layer cost nothing
// more, and the next layer's count again.
func TestTree_PrunesOnceForALayer(t *testing.T) {
	tree, path := newTree(t, small())
	apply(t, tree, true, file("d/sub/old", ""), file("d/old", ""))
	apply(t, tree, true, file("d/.wh..wh..opq", ""), file("d/sub/new", ""), file("d/.wh..wh..opq", ""), file("d/sub/.wh..wh..opq", ""), file("d/.wh.sub", ""))
	d := tree.top.children["d"]
	if want := "drwxr-xr-x d\ndrwxr-xr-x d/sub\n-rw-r--r-- d/sub/new = \n"; show(t, path) != want || d.pruned != 2 {
		t.Errorf("pruned by layer %d\n%s", d.pruned, show(t, path))
	}
	apply(t, tree, true, file("d/.wh..wh..opq", ""))
	if want := "drwxr-xr-x d\n"; show(t, path) != want {
		t.Errorf("the next layer left\n%s", show(t, path))
	}
}
