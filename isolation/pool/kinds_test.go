package pool

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// thing is a kind that notes what becomes of it.
type thing struct {
	name    string
	useless bool
	live    atomic.Int64
	touched atomic.Int64 // time
	retired atomic.Bool
	closed  atomic.Bool
	err     error
}

func (k *thing) Boot() bool          { return !k.useless }
func (k *thing) Touch()              { k.touched.Store(time.Now().UnixNano()) }
func (k *thing) Idle() time.Duration { return time.Since(time.Unix(0, k.touched.Load())) }
func (k *thing) Retire()             { k.retired.Store(true) }
func (k *thing) Deserted() bool      { return k.live.Load() == 0 }
func (k *thing) Close() error        { k.closed.Store(true); return k.err }

// hold takes one, made anew where it is not up.
func hold(t *testing.T, ks *Kinds[string, *thing], name string) (*thing, func()) {
	t.Helper()
	k, letGo, err := ks.Hold(name, func() (*thing, error) { return &thing{name: name}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return k, letGo
}

func TestKinds_AreSharedAndEvictedWhenUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ks := NewKinds[string, *thing]()
		a, letGo := hold(t, ks, "a")
		again, letGoAgain := hold(t, ks, "a")
		if a != again {
			t.Error("two of one kind are up")
		}
		letGoAgain()
		letGoAgain() // counts once
		time.Sleep(ks.After + 2*ks.Pause)
		synctest.Wait()
		if a.retired.Load() {
			t.Error("it was evicted from under somebody who makes a sandbox of it")
		}
		a.live.Add(1)
		letGo()
		time.Sleep(ks.After + 2*ks.Pause)
		synctest.Wait()
		if !a.retired.Load() || a.closed.Load() {
			t.Errorf("unused, with a sandbox: retired %v, closed %v", a.retired.Load(), a.closed.Load())
		}
		b, letGo := hold(t, ks, "a")
		letGo()
		if b == a {
			t.Error("an evicted kind was handed out")
		}
		a.live.Add(-1)
		time.Sleep(2 * ks.Pause)
		synctest.Wait()
		if !a.closed.Load() || b.closed.Load() {
			t.Errorf("closed: the evicted one %v, the new one %v", a.closed.Load(), b.closed.Load())
		}
		b.err = errors.New("a mount is busy")
		if err := ks.Close(); !errors.Is(err, b.err) || !b.closed.Load() {
			t.Errorf("close: %v", err)
		}
		if _, _, err := ks.Hold("a", func() (*thing, error) { return &thing{}, nil }); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestKinds_MakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ks := NewKinds[string, *thing]()
		ks.Most = 2
		var kinds []*thing
		for _, name := range []string{"a", "b", "a", "c"} {
			k, letGo := hold(t, ks, name)
			letGo()
			kinds = append(kinds, k)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if a, b, c := kinds[0], kinds[1], kinds[3]; a.retired.Load() || !b.retired.Load() || c.retired.Load() {
			t.Errorf("retired: a %v, b %v, c %v; b was not used for longest", a.retired.Load(), b.retired.Load(), c.retired.Load())
		}
		if err := ks.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestKinds_UselessOneIsTriedAgain by the next who needs it.
func TestKinds_UselessOneIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ks := NewKinds[string, *thing]()
		_, letGo, err := ks.Hold("a", func() (*thing, error) { return &thing{useless: true}, nil })
		if err != nil {
			t.Fatal(err)
		}
		letGo()
		synctest.Wait()
		k, letGo := hold(t, ks, "a")
		letGo()
		if k.useless {
			t.Error("it is still there")
		}
		if _, _, err := ks.Hold("b", func() (*thing, error) { return nil, errors.New("no such image") }); err == nil {
			t.Error("one that could not be made was held")
		}
		if err := ks.Close(); err != nil {
			t.Error(err)
		}
	})
}
