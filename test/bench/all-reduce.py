# SPDX-License-Identifier: Apache-2.0
# all-reduce.py RANKS ROUNDS MIB...: sums of so many MiB by gloo over loopback, each rank on a processor
# of its own as far as there are any.  Prints "gloo MIB MS", the median over the rounds of the time in
# which the first rank had the sum.
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def live(rank, ranks, rounds, sizes, port):
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[rank % len(processors)]})
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for mib in sizes:
        numbers, times = torch.empty(int(mib * 2**20 / 4)), []
        for _ in range(rounds + 1):
            numbers.fill_(rank + 1)
            dist.barrier()
            begun = time.monotonic()
            dist.all_reduce(numbers)
            times.append((time.monotonic() - begun) * 1e3)
        if rank == 0:
            print(f"gloo {mib:g} {statistics.median(times[1:]):.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    asked = int(sys.argv[1])
    mp.spawn(live, (asked, int(sys.argv[2]), [float(mib) for mib in sys.argv[3:]], chosen), nprocs=asked)
