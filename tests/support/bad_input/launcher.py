"""Runs a command; writes its exit code, its peak memory in KiB and its milliseconds of processor.

A process of its own, because a child's peak memory begins with that of the process it was forked
from: pytest may have torch loaded, this has nothing. Run with -I -S: no site, no imports.
"""

import os
import signal
import sys


def main() -> None:
    report, limit, *command = sys.argv[1:]
    child = os.fork()
    if child == 0:
        signal.alarm(int(limit))  # survives exec, and ends what hangs with SIGALRM
        os.set_inheritable(int(report), False)  # noqa: FBT003 - takes no keyword
        os.execv(command[0], command)  # noqa: S606 - the caller's own command
    _, status, usage = os.wait4(child, 0)
    spent = round(1000 * (usage.ru_utime + usage.ru_stime))
    report_of = (os.waitstatus_to_exitcode(status), usage.ru_maxrss, spent)
    os.write(int(report), " ".join(map(str, report_of)).encode())


main()
