package native

// ZygotePID is the process id of the live zygote, 0 when there is none.
func (e *Engine) ZygotePID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.zygote == nil {
		return 0
	}
	return e.zygote.proc.PID()
}

// KillZygote ends the zygote as an accident would.
func (e *Engine) KillZygote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.zygote.proc.Kill()
	<-e.zygote.proc.Done()
}
