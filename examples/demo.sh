#!/bin/bash
# Starts a daemon of its own, judges the three examples with it, shows how the
# host's isolation layers stand, and stops it. make demo builds what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${SANDBOXD_BIN:-build}
place=$(mktemp -d /tmp/sandboxd-demo.XXXXXX)
chmod 711 "$place" # the engine process runs as a user of its own
export SANDBOXD_SOCKET=$place/sandboxd.sock
engine=()
touch "$place/config.toml"
if [ "$(id -u)" != 0 ]; then
  echo "Without root there are no namespaces and cgroups of our own: this demo uses the weak engine \"process\"."
  printf '[engines]\nallow_process = true\n' >"$place/config.toml"
  engine=(--engine process)
fi

"$bin/sandboxd" --socket "$SANDBOXD_SOCKET" --state-dir "$place/state" --config "$place/config.toml" >"$place/log" 2>&1 &
daemon=$!
stop() {
  state=$?
  [ "$state" = 0 ] || { echo "== log of sandboxd"; cat "$place/log"; }
  kill "$daemon" 2>/dev/null || true
  wait "$daemon" 2>/dev/null || true
  rm -rf "$place"
  exit "$state"
}
trap stop EXIT

for _ in $(seq 300); do
  "$bin/sandboxctl" info >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || exit 1
  sleep 0.1
done

for example in intervals roman parse; do
  printf '\n== sandboxctl run examples/%s/solution.py --tests examples/%s/tests.py\n' "$example" "$example"
  # 1 means that the tests did not pass, which two of the examples are for.
  "$bin/sandboxctl" run "examples/$example/solution.py" --tests "examples/$example/tests.py" "${engine[@]}" </dev/null || [ $? = 1 ]
done

printf '\n== sandboxctl doctor\n'
"$bin/sandboxctl" doctor </dev/null || [ "$(id -u)" != 0 ]
