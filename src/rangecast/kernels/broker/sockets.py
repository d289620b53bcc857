"""Writing to many sockets in one call, without Python's lock in between.

A write to a loopback socket takes about ten microseconds, most of them in the kernel's stack. A thousand of
them are ten milliseconds, in which other threads run.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import config, types
from numba.core.typing.templates import signature

from rangecast.simd.compiler import kernel

_DO_NOT_WAIT = 0x4040  # MSG_DONTWAIT and MSG_NOSIGNAL of Linux

if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _send(handle: Any, address: Any, length: Any, flags: Any) -> Any:
        library = ctypes.CDLL(None)
        library.send.restype = ctypes.c_ssize_t
        library.send.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        return library.send(int(handle), int(address), int(length), int(flags))

else:
    # by name, so that what is compiled holds no address and can be kept on disk
    _send: Any = types.ExternalFunction(  # type: ignore[no-redef]
        "send", signature(types.int64, types.int32, types.intp, types.intp, types.int32)
    )


@kernel
def send_pieces(handles, address, begins, ends, sent):
    """Send the bytes begins[k] .. ends[k] - 1 behind an address to handle k, as many as it takes at once.

    sent[k] says how many those were; it is negative where the socket takes none.
    """
    for k in range(handles.size):
        sent[k] = _send(
            np.int32(handles[k]), address + begins[k], ends[k] - begins[k], np.int32(_DO_NOT_WAIT)
        )
