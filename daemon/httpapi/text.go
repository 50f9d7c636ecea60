package httpapi

import (
	"fmt"
	"strings"
)

// clip bounds text that goes into an answer.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// echo repeats a short scalar.
func echo(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) <= maxEcho {
			return strings.ToValidUTF8(v, "\ufffd")
		}
	case float64, int64, int, bool:
		return fmt.Sprint(v)
	}
	return ""
}
