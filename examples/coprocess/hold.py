"""Holds a lock while this program works. The token goes with each write, so that the storage can refuse a late one."""

import json
import os
import subprocess
import sys

fencelock = os.environ.get("FENCELOCK", "fencelock")
lock = subprocess.Popen(
    [fencelock, "lock", "-wait", "30s", "account:42"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
granted = lock.stdout.readline()
if not granted:
    sys.exit(lock.wait())  # 120: held by another; 121: no server answers

print("works with token", json.loads(granted)["token"], flush=True)

lock.stdin.close()  # gives the lock back
for line in lock.stdout:
    print(json.loads(line)["event"])  # "released", or "lost": another holder may have entered meanwhile
sys.exit(lock.wait())
