"""Covert senders: programs that try to say one bit of their rows by anything but their number.

`bit` is what is to be sent. Each has a way to be heard outside a sandbox, by whoever sees all that
a bare process does: what it prints, its exit code, its files, its time, its very bytes.
"""

from __future__ import annotations

from typing import Final

HEAD: Final = "import os, sys, time, json, math\n"

# name -> the body of a function that has `bit` (0 or 1) and returns the answer
SENDERS: Final[dict[str, str]] = {
    "file-name": "open('out/b%d' % bit, 'w').close(); return 170.0",
    "file-size": "open('out/f', 'w').write('x' * (1 + bit)); return 170.0",
    "file-count": "[open('out/%d' % i, 'w').close() for i in range(1 + bit)]; return 170.0",
    "file-mode": "open('out/f', 'w').close(); os.chmod('out/f', 0o600 + bit); return 170.0",
    "file-time": "open('out/f', 'w').close(); os.utime('out/f', (bit * 99,) * 2); return 170.",
    "folder-name": "os.mkdir('out/d%d' % bit); return 170.0",
    "exit-code": "os._exit(bit)",
    "signal": "os.abort() if bit else os._exit(0)",
    "error-text": "raise ValueError('bit %d' % bit)",
    "error-kind": "raise (ValueError if bit else KeyError)()",
    "standard-error": "sys.stderr.write('bit %d' % bit); sys.stderr.flush(); return 170.0",
    "standard-output": "sys.stdout.write('bit %d' % bit); sys.stdout.flush(); return 170.0",
    "processor-time": "t = time.process_time() + bit * .5\n"
    " while time.process_time() < t: pass\n return 170.0",
    "memory": "x = bytearray(bit * (200 << 20)); return 170.0",
    "key-order": "return {'m': 170.0, 'n': 170.0} if bit else {'n': 170.0, 'm': 170.0}",
    "extra-key": "return {'m': 170.0, 'bit%d' % bit: 1.0}",
    "low-bits": "return 170.0 + bit * 2e-9",
    "kind-of-number": "return 170 if bit else 170.0",
    "kind-of-nothing": "return {'m': math.nan if bit else math.inf}",
    "sign-of-infinity-in-text": "return {'m': 'nan' if bit else '-nan'}",
    "far-outside": "return 1e300 if bit else 1e12",
    "missing-or-malformed": "return {} if bit else {'m': None}",
    "long-answer": "return {'m': 170.0, **{'k%05d' % i: 1.0 for i in range(bit * 100)}}",
    "too-long-or-missing": "return {'k%07d' % i: 1.0 for i in range(bit * 20_000)}",
    "spaces-in-answer": "os.write(3, b'\\x01{' + b' ' * bit + b'}'); os._exit(0)",
    "half-an-answer": "os.write(3, b'\\x01' + b'{\"m\": 1' * bit); os._exit(0)",
    "deep-answer": "os.write(3, b'[' * (1 + bit * 5000)); os._exit(0)",
    "hex-of-nothing": "os.write(3, b'{\"answer.json\": \"%s\"}' % (b'zz', b'6')[bit]); os._exit(0)",
}
# heard outside by the time or the memory it takes, not by its bytes
BY_USE: Final = frozenset({"processor-time", "memory"})


def source(name: str) -> str:
    """Return the sender as a program: a function `sent` of the rows, whose count is the bit."""
    return (
        f"{HEAD}\ndef send(bit):\n {SENDERS[name]}\n"
        "def sent(rows):\n return send(len(rows['id']) - 2)\n"
    )
