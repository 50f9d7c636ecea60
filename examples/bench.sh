#!/bin/bash
# Starts a daemon of its own, measures it against a plain Python subprocess, and
# stops it. make bench builds what it needs; arguments go to sandboxctl bench.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${SANDBOXD_BIN:-build}
place=$(mktemp -d /tmp/sandboxd-bench.XXXXXX)
chmod 711 "$place" # the engine process runs as a user of its own
export SANDBOXD_SOCKET=$place/sandboxd.sock
cat >"$place/config.toml" <<'CONFIG'
[log]
level = "warn"
CONFIG
# More of a configuration, to measure variants of it.
[ -z "${BENCH_CONFIG:-}" ] || cat "$BENCH_CONFIG" >>"$place/config.toml"

"$bin/sandboxd" --socket "$SANDBOXD_SOCKET" --state-dir "$place/state" --config "$place/config.toml" >"$place/log" 2>&1 &
daemon=$!
stop() {
  state=$?
  kill "$daemon" 2>/dev/null || true
  wait "$daemon" 2>/dev/null || true
  if [ -s "$place/log" ] || [ "$state" != 0 ]; then echo "== log of sandboxd" && cat "$place/log"; fi
  rm -rf "$place"
  exit "$state"
}
trap stop EXIT

for _ in $(seq 300); do
  "$bin/sandboxctl" info >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || exit 1
  sleep 0.1
done

# The first thing that a bench does is to wait until sandboxes are ready.
mkdir -p build
"$bin/sandboxctl" bench --json build/bench.json "$@"
