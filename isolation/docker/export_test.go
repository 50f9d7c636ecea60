package docker

// Healing tells whether something is left to be removed when the Docker Engine is
// there.
func (e *Engine) Healing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.healing
}

// Blind has e take the containers of this machine for another's.
func Blind(e *Engine) { e.blind = true }
