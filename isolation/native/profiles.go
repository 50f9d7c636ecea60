package native

import (
	"encoding/json"
	"fmt"
	"slices"
)

// mostProfiles is how many profiles a zygote keeps: of the usual limits, and of
// those that some callers prefer. One is some 100 KiB that each fork copies the
// page table of, so that callers who never ask for the same limits twice must not
// have it keep all of them.
const mostProfiles = 16

// knownProfile is a profile that the zygote has.
type knownProfile struct {
	number uint64
	used   uint64 // id of the last order that needed it
}

// profile is the number of a shape's profile, which the zygote is told first
// when it does not have it. The caller holds the lock, and is about to queue an
// order.
func (z *zygote) profile(s shape, newProfile func() (profile, error)) (uint64, error) {
	known, ok := z.profiles[s]
	if !ok {
		p, err := newProfile()
		if err != nil {
			return 0, err
		}
		p.Profile = z.told
		p.Forget = z.dropProfiles()
		message, err := json.Marshal(p)
		if err == nil {
			err = z.control.Send(message)
		}
		if err != nil {
			return 0, fmt.Errorf("send profile to zygote: %w", err)
		}
		z.told++
		known = &knownProfile{number: p.Profile}
		z.profiles[s] = known
	}
	known.used = z.nextID
	return known.number, nil
}

// dropProfiles makes room for one more, at the cost of those that were not used
// for longest, and returns their numbers. The caller holds the lock.
func (z *zygote) dropProfiles() []uint64 {
	dropped := []uint64{}
	for len(z.profiles) >= mostProfiles {
		var oldest shape
		var found *knownProfile
		for s, known := range z.profiles {
			waits := slices.ContainsFunc(z.queue, func(w *waitingOrder) bool { return w.profile == known.number })
			if !waits && (found == nil || known.used < found.used) {
				oldest, found = s, known
			}
		}
		if found == nil {
			break // all are about to be needed
		}
		delete(z.profiles, oldest)
		dropped = append(dropped, found.number)
	}
	return dropped
}
