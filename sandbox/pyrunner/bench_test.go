package pyrunner

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sandbox"
)

// BenchmarkFrame is the codec: one frame out and in, by the size of its data.
func BenchmarkFrame(b *testing.B) {
	for _, size := range []int{100, 10_000, 250_000} {
		f := &frame{Type: FrameOutput, Stream: "stdout", Data: bytes.Repeat([]byte("x"), size)}
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var buf bytes.Buffer
			for range b.N {
				buf.Reset()
				if err := writeFrame(&buf, f, MaxFrameFromGuest); err != nil {
					b.Fatal(err)
				}
				if _, err := readFrame(&buf, MaxFrameFromGuest); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDirect is what the daemon does for one run without a supervisor, the
// kernel's part left out.
func BenchmarkDirect(b *testing.B) {
	events := loaded + `{"nonce":"n","event":"sites","top":3,"all":3}` + "\n"
	for site := range 3 {
		events += fmt.Sprintf(`{"nonce":"n","event":"passed","site":%d}`+"\n", site)
	}
	events += `{"nonce":"n","event":"done"}` + "\n"
	limits := sandbox.DefaultLimits()
	b.ReportAllocs()
	for range b.N {
		e, err, _ := converseDirect(&scripted{says: []saying{{HeardReport, strings.Clone(events)}}}, sandbox.ModeTests, limits)
		if err != nil || e.Report.Passed != 3 {
			b.Fatal(err, e.Report)
		}
		if res := Assemble(sandbox.ModeTests, limits, e); !res.Passed {
			b.Fatal(res.Verdict)
		}
	}
}
