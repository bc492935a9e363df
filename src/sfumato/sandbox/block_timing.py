"""How long blocks and jobs take: times that only public numbers decide (soundness rule 27).

*Isolated*: each block starts at a fixed time, with a rest before the next one. *Batch*: blocks run
side by side without rests, and only the job has a fixed duration.
"""

from __future__ import annotations

from typing import Final

from sfumato.sandbox.ports import MAX_KEPT, MOST_THREADS, InputTiming, SandboxLimits

_REST_S: Final = 0.3  # pause between the deadline of a block and the start of the next
_CLEAR_S: Final = 0.1  # more pause per gigabyte that the kernel has to free
# The kernel finishes a read of a file in memory before it obeys a kill. Each thread of a block may
# be in such a read, of a whole file, and many buffers can be the same memory.
_READ_ON_S: Final = 0.06  # longest time per gigabyte of these reads; 0.04 were measured
_MOST_READ_GB: Final = 2.0  # the most that one system call reads
_READ_S: Final = 0.02  # longest time, in seconds, to parse one result file of a block
_WRITE_S: Final = 2.0  # fixed time for the engine to write the inputs
_KEPT_MB: Final = MAX_KEPT / (1 << 20)  # largest stored result of a turn
_KEPT_S: Final = 0.02  # longest time for the engine to store the result of one turn
# longest time per megabyte of people's files, which are read twice and written
_COPY_S: Final = 0.02
_DROP_S: Final = 0.005  # longest time to delete one megabyte of inputs
# the kernel needs up to 1.3 times the processor time of making mappings to remove them
_ENDING: Final = 1.5
_END_S: Final = 0.4  # longest time to see that a batch is over
_START_S: Final = 0.05  # more time for each block of a batch, to start and to end it


def turn_s(limits: SandboxLimits, *, is_tree: bool = False) -> float:
    """Return the fixed time in seconds from one block's start to the next on one processor.

    Programs can't change it, so the time reveals nothing about people's rows. To end a process tree
    takes longer, because its processes may have spent all their time on making mappings.
    """
    gigabytes = (limits.memory_mb + limits.disk_mb) / 1024
    rest = _REST_S + (_ENDING * limits.cpu_s if is_tree else 0.0)
    return limits.wall_s + rest + _CLEAR_S * gigabytes + read_on_s(limits, is_tree=is_tree)


def read_on_s(limits: SandboxLimits, *, is_tree: bool) -> float:
    """Return how long the threads of a killed block may still read files in memory, in seconds."""
    threads = limits.processes if is_tree else MOST_THREADS
    return threads * min(_MOST_READ_GB, limits.disk_mb / 1024) * _READ_ON_S


def batch_s(blocks: int, sandboxes: int, limits: SandboxLimits) -> float:
    """Return the fixed time in seconds in which the blocks of a batch run.

    It is the declared time, or else the time in which each block can use up its processor time.
    """
    if limits.job_s is not None:
        return limits.job_s
    return -(-blocks // sandboxes) * (limits.cpu_s + _START_S)


def slot_s(
    blocks: int, sandboxes: int, limits: SandboxLimits, files: int = 1, *, is_tree: bool = False
) -> float:
    """Return the fixed time slot of a job of blocks, in seconds, from public numbers only."""
    read = blocks * files * _READ_S
    if limits.is_batch:
        gigabytes = (limits.memory_mb + limits.disk_mb) / 1024
        end = _END_S + _ENDING * limits.cpu_s + _CLEAR_S * gigabytes * sandboxes
        end += read_on_s(limits, is_tree=is_tree)
        return batch_s(blocks, sandboxes, limits) + end + read
    return -(-blocks // sandboxes) * turn_s(limits, is_tree=is_tree) + read


def write_s(laid: InputTiming) -> float:
    """Return the fixed time, in seconds, in which the engine writes the programs' inputs.

    It depends on public numbers only.
    """
    return _WRITE_S + laid.turns * _KEPT_S + laid.megabytes * _COPY_S


def drop_s(laid: InputTiming | None) -> float:
    """Return the fixed time, in seconds, in which the programs' inputs are deleted.

    It depends on public numbers only.
    """
    return 0.0 if laid is None else _DROP_S * (laid.megabytes + laid.turns * _KEPT_MB)
