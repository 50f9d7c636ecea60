"""Which layers an engine lacks on this host, as the daemon's own doctor says."""

# What escape and resource cases rest on. Without one of them a case of those
# groups says nothing about the engine beyond what its doctor already owns up to.
STRONG_LAYERS = frozenset([
    "user_ns", "pid_ns", "mount_ns", "net_ns", "ipc_ns", "uts_ns", "cgroup_ns", "read_only_rootfs",
    "private_tmp", "masked_proc", "cgroup_memory", "cgroup_pids", "cgroup_cpu",
])


def lacking(client, engine):
    """(engine, layers of STRONG_LAYERS that it does not hold)."""
    report = client.ask("GET", "/v1/doctor").json() or {}
    engines = report.get("engines", [])
    for support in engines:
        if support.get("engine") == engine or (not engine and support.get("usable")):
            held = {layer["layer"] for layer in support.get("layers", []) if layer.get("state") == "held"}
            return support.get("engine"), sorted(STRONG_LAYERS - held)
    return engine, sorted(STRONG_LAYERS)
