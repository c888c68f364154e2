"""What a run was made with, as JSON: facts.py ROUNDS SECONDS CONNECTIONS ONCEWARD SERVER-CORE LOAD-CORE DISK ROWS SKIPPED

ROWS and SKIPPED have one entry a line."""

import json
import os
import subprocess
import sys
import time


def first_line(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError:
        return None
    return done.stdout.splitlines()[0] if done.stdout else None


def cpu_model():
    with open("/proc/cpuinfo") as cpus:
        return next((line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name")), "unknown")


rounds, seconds, connections, onceward, server_core, load_core, disk, rows, skipped = sys.argv[1:]
facts = {
    "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "rounds": int(rounds),
    "seconds": int(seconds),
    "connections": int(connections),
    "rows": rows.splitlines(),
    "skipped": skipped.splitlines(),
    "machine": {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "server_core": int(server_core),
        "load_core": int(load_core),
        "disk": disk,
        "load_average": os.getloadavg()[0],
    },
    "versions": {
        "onceward": onceward,
        "nginx": first_line("nginx", "-v"),
        "haproxy": first_line("haproxy", "-v"),
        "redis": first_line("redis-server", "--version"),
        "wrk": first_line("wrk", "-v"),
    },
}
json.dump(facts, sys.stdout)
