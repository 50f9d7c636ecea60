package pyrunner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadFrame_SharedVectors reads what the guest's codec is held to write
// (guest/tests/test_frames.py).
func TestReadFrame_SharedVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/frames.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name   string
		Fields json.RawMessage
		Body   string
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			got, err := readFrame(bytes.NewReader(withLength([]byte(v.Body))), MaxFrameFromGuest)
			if err != nil {
				t.Fatal(err)
			}
			var want frame
			if err := json.Unmarshal(v.Fields, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
			if got.Type == "" {
				t.Error("no type")
			}
		})
	}
}

func withLength(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...) //nolint:gosec // a test's own
}

func TestReadFrame_EndAndNonsense(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"end", nil, io.EOF},
		{"cut header", []byte{0, 0}, errCut},
		{"empty", []byte{0, 0, 0, 0}, ErrFrame},
		{"too long", []byte{0xff, 0xff, 0xff, 0xff}, ErrFrame},
		{"cut body", []byte{0, 0, 0, 9, '{'}, errCut},
		{"no JSON", withLength([]byte("hello")), ErrFrame},
		{"wrong type", withLength([]byte(`{"type":5}`)), ErrFrame},
		{"bad base64", withLength([]byte(`{"type":"output","data":"%"}`)), ErrFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := readFrame(bytes.NewReader(c.data), MaxFrameFromGuest); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
