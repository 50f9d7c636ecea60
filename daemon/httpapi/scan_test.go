package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/sandbox"
)

// FuzzSpec takes arbitrary bodies through scan and decoding: nothing may panic,
// and what scan lets through must decode to what was sent.
func FuzzSpec(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `{"solution":"x","tests":"y"}`, `{"program":"\ud83d\ude00 \udcff \u0000"}`,
		`{"program":"\\ud800 \"\\\\\ud800"}`, `{"limits":{"wall_ms":1e400}}`, `{"files":[{"path":"a","content":"\ud800"}]}`,
		`{"labels":{"a":"b","\u0061":"c"}}`, `{"args":["a",["b"]],"x":[[[]]]}`, "{\"program\":\"\xff\"}", ` { "solution" : "" } `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		what, err := scan(body)
		if err != nil {
			var p *Problem
			if !errors.As(err, &p) || p.Status/100 != 4 || !utf8.ValidString(p.Detail) || len(p.Errors) == 0 {
				t.Fatalf("error %v", err)
			}
			return
		}
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("let through: %q", body)
		}
		var spec sandbox.Spec
		if json.Unmarshal(body, &spec) != nil {
			return
		}
		if what.fault == nil && loneEscapes(body) {
			t.Fatalf("a lone surrogate got through: %q", body)
		}
		if f := what.fault; f != nil && (f.Start < 0 || f.End <= f.Start || f.Field == "" || !utf16.IsSurrogate(f.First)) {
			t.Fatalf("fault %+v", f)
		}
	})
}

// loneEscapes finds lone surrogates by another way than scan: decoding makes
// U+FFFD of each, so a decoded text has more of them than the body wrote.
func loneEscapes(body []byte) bool {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return false
	}
	written := bytes.Count(body, []byte("\ufffd")) + strings.Count(strings.ToLower(string(body)), `\ufffd`)
	return replaced(v) > written
}

func replaced(v any) int {
	n := 0
	switch v := v.(type) {
	case string:
		n = strings.Count(v, "\ufffd")
	case []any:
		for _, e := range v {
			n += replaced(e)
		}
	case map[string]any:
		for k, e := range v {
			n += strings.Count(k, "\ufffd") + replaced(e)
		}
	}
	return n
}
