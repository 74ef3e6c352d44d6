#!/usr/bin/env bash
# Holds a lock while this script works. The token goes with each write, so that the storage can refuse a late one.
set -euo pipefail

coproc LOCK { exec "${FENCELOCK:-fencelock}" lock -wait 30s account:43; }
pid=$LOCK_PID
if ! read -r granted <&"${LOCK[0]}"; then
  wait "$pid" # 120: held by another; 121: no server answers
fi

token=${granted#*\"token\":\"}
echo "works with token ${token%%\"*}"

exec {LOCK[1]}>&- # gives the lock back
wait "$pid"       # 122 if it was lost meanwhile: another holder may have entered
