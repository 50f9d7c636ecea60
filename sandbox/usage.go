package sandbox

// Usage is what one run consumed. Times are milliseconds with a fraction,
// because a whole run takes about two of them.
type Usage struct {
	CPUMillis       float64 `json:"cpu_ms" doc:"CPU time of the whole sandbox, setup of the sandbox included where it cannot be told apart"`
	UserMillis      float64 `json:"user_ms" doc:"Part of cpu_ms spent in user mode"`
	SystemMillis    float64 `json:"system_ms" doc:"Part of cpu_ms spent in the kernel"`
	MemoryPeakBytes int64   `json:"memory_peak_bytes" doc:"Most memory in use at once by the whole sandbox; 0 when the engine cannot measure it"`
	QueueMillis     float64 `json:"queue_ms" doc:"Time the run waited to be admitted"`
	Ready           bool    `json:"ready" doc:"The sandbox had been made ahead of need"`
	SetupMillis     float64 `json:"setup_ms" doc:"Time from admission to the start of the program: pool_ms, fork_ms, isolate_ms, and handing over what to run"`
	PoolMillis      float64 `json:"pool_ms" doc:"Time to look for a sandbox that was made ahead of need"`
	ForkMillis      float64 `json:"fork_ms" doc:"Time until the sandbox's first process existed; 0 for one made ahead of need"`
	IsolateMillis   float64 `json:"isolate_ms" doc:"Time from then until the sandbox was isolated; 0 for one made ahead of need"`
	RunMillis       float64 `json:"run_ms" doc:"Wall time from the start of the program to its end"`
	CollectMillis   float64 `json:"collect_ms" doc:"Time to collect files after the program's end"`
	ReapMillis      float64 `json:"reap_ms" doc:"Time from then until the whole process tree was gone"`
	StdoutBytes     int64   `json:"stdout_bytes" doc:"Bytes written to standard output, kept or not"`
	StderrBytes     int64   `json:"stderr_bytes" doc:"Bytes written to standard error, kept or not"`
}
