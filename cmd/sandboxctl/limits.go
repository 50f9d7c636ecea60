package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/sandbox"
)

// parseLimits reads name=value pairs. Bytes may have a unit, times too.
func parseLimits(pairs []string) (sandbox.Limits, error) {
	var l sandbox.Limits
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return l, usagef("--limit %s: want name=value", pair)
		}
		if err := setLimit(&l, name, text); err != nil {
			return l, usagef("--limit %s: %w", pair, err)
		}
	}
	return l, nil
}

func setLimit(l *sandbox.Limits, name, text string) error {
	var names []string
	for _, f := range l.Fields() {
		names = append(names, f.Name)
		if f.Name != name {
			continue
		}
		v, err := limitValue(name, text)
		if err != nil {
			return err
		}
		if v <= 0 {
			return fmt.Errorf("%d is not positive", v)
		}
		*f.Value = v
		return nil
	}
	return fmt.Errorf("no such limit; there are %s", strings.Join(names, ", "))
}

func limitValue(name, text string) (int64, error) {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return v, nil
	}
	switch {
	case strings.HasSuffix(name, "_bytes"):
		return parseBytes(text)
	case strings.HasSuffix(name, "_ms"):
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is neither a number nor a time such as 5s", text)
		}
		if d%time.Millisecond != 0 {
			return 0, fmt.Errorf("%q is no whole number of milliseconds", text)
		}
		return d.Milliseconds(), nil
	}
	return 0, fmt.Errorf("%q is no number", text)
}

type byteUnit struct {
	suffix string
	size   int64
}

// byteUnits, those that end in another one first.
func byteUnits() []byteUnit {
	return []byteUnit{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"kB", 1e3},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"K", 1 << 10},
		{"M", 1 << 20},
		{"G", 1 << 30},
		{"B", 1},
	}
}

func parseBytes(text string) (int64, error) {
	for _, u := range byteUnits() {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || v > (1<<62)/u.size {
			break
		}
		return v * u.size, nil
	}
	return 0, fmt.Errorf("%q is neither a number nor a size such as 256MiB", text)
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func millisText(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
