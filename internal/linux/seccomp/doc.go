// Package seccomp builds the system call filters of a sandbox as raw BPF
// programs, for the architecture of the guest and not that of the daemon.
//
// It owns three things: the allowlist for the untrusted program ([Program]),
// the outer denylist for the trusted supervisor ([Supervisor]), and the system
// call numbers the guest needs ([Numbers]), so that no number is ever written
// into Python.
//
// It must never allow a call because it is unknown: in a program's filter what
// no rule names answers ENOSYS, as an older kernel would, so that libraries
// fall back. Refused calls answer an errno and do not kill, because ordinary
// code probes; only a foreign calling convention kills.
//
// Filters see registers, never memory (seccomp(2)). So clone3, whose flags are
// in memory, answers ENOSYS, which makes glibc fall back to clone (glibc 2.34,
// sysdeps/unix/sysv/linux/clone-internal.c), and a rule may compare an argument
// only where the kernel uses no more than its low 32 bits.
//
// Proven by TestProgram_Decisions and TestSupervisor_Decisions (every rule, both
// architectures, interpreted), TestInstalled_KernelAnswers (the kernel's own
// answers) and TestPython_StandardLibrary (CPython at work behind the filter).
package seccomp
