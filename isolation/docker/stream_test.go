package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func framed(kind byte, text string) []byte {
	head := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[4:], uint32(len(text))) //nolint:gosec // short
	return append(head, text...)
}

func streamOf(r io.Reader) *stream {
	return &stream{r: bufio.NewReader(r), ended: make(chan struct{}), onEnd: func() {}}
}

func TestStream_TakesStreamsApart(t *testing.T) {
	text := bytes.Join([][]byte{
		framed(stdout, "he"), framed(stderr, "a warning"), framed(stdout, ""), framed(stdout, "llo"), framed(stderr, " and another"),
	}, nil)
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(text), "byte by byte": iotest.OneByteReader(bytes.NewReader(text)),
		"the end with the data": iotest.DataErrReader(bytes.NewReader(text)),
	} {
		s := streamOf(r)
		got, err := io.ReadAll(s)
		if err != nil || string(got) != "hello" || s.suffix() != ": a warning and another" {
			t.Errorf("%s: %q, %q, %v", name, got, s.suffix(), err)
		}
		if !s.hasEnded() {
			t.Errorf("%s: nobody was told of the end", name)
		}
	}
}

func TestStream_RefusesWhatIsNoFrame(t *testing.T) {
	for _, text := range []string{"\x03\x00\x00\x00\x00\x00\x00\x01x", "HTTP/1.1 200 OK\r\n"} {
		if got, err := io.ReadAll(streamOf(strings.NewReader(text))); err == nil || len(got) > 0 {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	s := streamOf(bytes.NewReader(framed(stdout, "whole")[:10]))
	if got, err := io.ReadAll(s); string(got) != "wh" || err != nil {
		t.Errorf("cut short: %q, %v", got, err)
	}
}

// TestStream_KeepsTheLastOfStandardError, however much there is.
func TestStream_KeepsTheLastOfStandardError(t *testing.T) {
	var text bytes.Buffer
	for range 100 {
		text.Write(framed(stderr, strings.Repeat("x", 1000)))
	}
	text.Write(framed(stderr, "the end"))
	s := streamOf(&text)
	if _, err := io.ReadAll(s); err != nil {
		t.Error(err)
	}
	if len(s.said) > maxSaid || !strings.HasSuffix(s.suffix(), "the end") {
		t.Errorf("%d bytes, ending in %q", len(s.said), s.suffix()[max(0, len(s.suffix())-20):])
	}
}
