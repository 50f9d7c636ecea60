package store

import (
	"context"
	"io"
	"time"
)

// Phase is a part of an import.
type Phase string

// The phases of an import, in order.
const (
	PhaseFetch  Phase = "fetch"  // a stream is read, or a manifest
	PhaseUnpack Phase = "unpack" // layers are fetched and unpacked
	PhaseCheck  Phase = "check"  // Python is looked for, and the digest computed
	PhaseSync   Phase = "sync"   // the disk is waited for
)

// Progress tells how far an import is.
type Progress struct {
	Phase Phase
	Done  int64 // bytes, as stored at the source
	Total int64 // 0 where it is not known
}

// meter tells of progress, not too often.
type meter struct {
	tell func(Progress)
	at   Progress
	told time.Time
}

// tellEvery is how often a phase is told of.
const tellEvery = 100 * time.Millisecond

func (m *meter) phase(p Phase, total int64) {
	if m.at.Phase != "" {
		m.now()
	}
	m.at = Progress{Phase: p, Total: total}
	m.now()
}

func (m *meter) add(n int) {
	m.at.Done += int64(n)
	if time.Since(m.told) > tellEvery {
		m.now()
	}
}

func (m *meter) now() {
	m.told = time.Now()
	if m.tell != nil {
		m.tell(m.at)
	}
}

// metered counts a stream and ends with the context.
type metered struct {
	ctx   context.Context
	r     io.Reader
	meter *meter
}

func (m *metered) Read(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, context.Cause(m.ctx)
	}
	n, err := m.r.Read(p)
	m.meter.add(n)
	return n, err
}
