"""What one append of 1 KiB and its fdatasync take in a folder: prints p50 and p99 in microseconds."""

import os
import sys
import time

APPENDS = 300

path = os.path.join(sys.argv[1], "fdatasync")
file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
took = []
for _ in range(APPENDS):
    start = time.perf_counter_ns()
    os.write(file, b"x" * 1024)
    os.fdatasync(file)
    took.append(time.perf_counter_ns() - start)
os.close(file)
os.unlink(path)
took.sort()
print(took[APPENDS // 2] // 1000, took[APPENDS * 99 // 100] // 1000)
