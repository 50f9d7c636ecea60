package isolation

// ProcFiles are what a whole /proc of Linux shows beside processes (proc(5) and
// fs/proc, to Linux 6.12): masked where an engine cannot have a /proc of processes
// only. A name that a kernel does not have is no error to a runtime; one of a
// newer kernel that is not here makes the layer masked_proc missing.
func ProcFiles() []string {
	names := []string{
		"acpi", "allocinfo", "asound", "bootconfig", "buddyinfo", "bus", "cgroups", "cmdline", "config.gz",
		"consoles", "cpuinfo", "crypto", "devices", "diskstats", "dma", "driver", "dynamic_debug", "execdomains",
		"fb", "filesystems", "fs", "interrupts", "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users",
		"keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "loadavg", "locks", "lockdep",
		"lockdep_chains", "lockdep_stats", "lock_stat", "mdstat", "meminfo", "misc", "modules", "mpt", "mtd", "mtrr",
		"pagetypeinfo", "partitions", "pressure", "profile", "sched_debug", "schedstat", "scsi", "slabinfo",
		"softirqs", "stat", "swaps", "sys", "sysrq-trigger", "sysvipc", "timer_list", "timer_stats", "tty", "uptime",
		"version", "version_signature", "vmallocinfo", "vmcore", "vmstat", "xen", "zoneinfo",
	}
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, "/proc/"+name)
	}
	return paths
}
