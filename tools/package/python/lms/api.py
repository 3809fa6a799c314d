"""What a program may ask of the shim that it runs under, and tell it. Without a shim nothing is done: calls that could have an
effect answer False, stats() is empty. <lms/lms.h> has the same for C, and says what each does.

Memory is an int (an address on the GPU) with a size in bytes, or anything that lies there: a tensor (data_ptr()) or an
array (__cuda_array_interface__), of which all bytes are meant that it spans."""

import contextlib
import csv
import ctypes
import io
import os
import re
import shutil
import subprocess
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

_ABSENT, _INVALID, _NOT_MANAGED, _NO_ROOM, _BUSY, _NOT_NOW, _FAILED = range(1, 8)
_VERSION = 1

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "counters.def"), encoding="ascii") as _table:
    _COUNTERS = tuple(re.findall(r"^LMS_COUNTER\((\w+)", _table.read(), re.M))
_LEVELS = ("budget_bytes", "allocated_bytes", "peak_allocated_bytes", "most_beyond_bytes", "resident_bytes", "host_bytes")
_SPEEDS = ("in_bytes_per_s", "out_bytes_per_s")  # 0: not known
_SHARED = ("turn_wait_ns",)
_GRANTED = ("granted_bytes", "least_granted_bytes")  # 0: not shared
_MOST_GPUS = 64


def _struct(name: str, fields: Tuple[str, ...]) -> Any:
    head = [("size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]
    return type(name, (ctypes.Structure,), {"_fields_": head + [(field, ctypes.c_uint64) for field in fields]})


_Counters = _struct("_Counters", _COUNTERS)
_Levels = _struct("_Levels", _LEVELS + _SPEEDS + _SHARED + _GRANTED)


class _Buffer(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("resident_bytes", ctypes.c_uint64),
                ("pinned_bytes", ctypes.c_uint64), ("device", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


_on_memory = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_plain = ctypes.CFUNCTYPE(ctypes.c_int)


class _Api(ctypes.Structure):
    """lms_api of <lms/lms.h>."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("counters", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Counters))),
        ("levels", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Levels))),
        ("snapshot", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Buffer), ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t))),
        ("pin", _on_memory),
        ("unpin", _on_memory),
        ("prefetch", _on_memory),
        ("evict", _on_memory),
        ("limit", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)),
        ("pause", _plain),
        ("resume", _plain),
        ("region_begin", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)),
        ("region_end", _plain),
    ]


def _find() -> Any:
    get = getattr(ctypes.CDLL(None), "lms_api_get", None)
    if get is None:
        return None
    get.restype = ctypes.POINTER(_Api)
    table = get(ctypes.c_uint32(_VERSION))
    return table.contents if table and table.contents.size >= ctypes.sizeof(_Api) else None


_api = _find()


class Error(RuntimeError):
    """The shim could not do it now: in a host function, or the driver refused."""


class NoRoom(Error, MemoryError):
    """More than can be on the GPU, or than the host has memory for."""


class Buffer(NamedTuple):
    """A buffer that the shim manages, and where its bytes are."""

    address: int
    bytes: int
    resident_bytes: int
    pinned_bytes: int
    device: int


def _answer(status: int, call: str) -> bool:
    """Whether it was done. False: there was nothing to do, or some of it is in use."""
    if status == 0:
        return True
    if status in (_ABSENT, _NOT_MANAGED, _BUSY):
        return False
    if status == _INVALID:
        raise ValueError(f"{call}: not a part of one buffer, or no such pin")
    if status == _NO_ROOM:
        raise NoRoom(f"{call}: more than there is room for")
    raise Error(f"{call}: " + ("not possible here and now" if status == _NOT_NOW else "refused by the driver"))


def _span(shape: Any, strides: Any, item: int) -> int:
    """Bytes from the first to the last of an array; strides in bytes."""
    if any(n == 0 for n in shape):
        return 0
    if strides is None:
        count = item
        for n in shape:
            count *= n
        return count
    if any(stride < 0 for stride in strides):
        raise ValueError("an array with negative strides")
    return sum((n - 1) * stride for n, stride in zip(shape, strides)) + item


def _memory(what: Any, size: Optional[int]) -> Tuple[int, int]:
    """Address and size. An empty array has neither."""
    if isinstance(what, int) and not isinstance(what, bool):
        address, spanned = what, 0
    elif callable(getattr(what, "data_ptr", None)):
        item = what.element_size()
        address, spanned = what.data_ptr(), _span(tuple(what.shape), [n * item for n in what.stride()], item)
        if spanned == 0:
            return 0, 0
    elif hasattr(what, "__cuda_array_interface__"):
        array = what.__cuda_array_interface__
        address, spanned = array["data"][0], _span(array["shape"], array.get("strides"), int(array["typestr"][2:]))
        if spanned == 0:
            return 0, 0
    else:
        raise TypeError(f"expected an address on the GPU, a tensor or an array there, not {type(what).__name__}")
    if size is None:
        size = spanned
    elif not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise ValueError(f"a size of {size!r} bytes")
    if not 0 < address < 1 << 64 or size >= 1 << 64:
        raise ValueError(f"{address:#x} with {size} bytes is no memory")
    return address, size


def _move(name: str, what: Any, size: Optional[int]) -> bool:
    address, size = _memory(what, size)
    if _api is None or address == 0:
        return False
    return _answer(getattr(_api, name)(address, size), f"{name} of {size or 'the buffer'} at {address:#x}")


def present() -> bool:
    """Whether this process runs under the shim."""
    return _api is not None


def stats() -> Dict[str, Any]:
    """The counters so far, and under "gpus" the levels of each: what LMS_STATS writes at the end."""
    if _api is None:
        return {}
    counters = _Counters(ctypes.sizeof(_Counters))
    _answer(_api.counters(ctypes.byref(counters)), "stats")
    all_of_it: Dict[str, Any] = {name: getattr(counters, name) for name in _COUNTERS}
    all_of_it["gpus"] = []
    for gpu in range(_MOST_GPUS):
        levels = _Levels(ctypes.sizeof(_Levels))
        if _answer(_api.levels(gpu, ctypes.byref(levels)), "stats"):
            all_of_it["gpus"].append({"gpu": gpu, **{name: getattr(levels, name) for name in _LEVELS + _SHARED},
                                      **{name: getattr(levels, name) or None for name in _SPEEDS + _GRANTED}})
    return all_of_it


def snapshot() -> List[Buffer]:
    """Where every managed buffer is at this moment."""
    if _api is None:
        return []
    room = ctypes.c_size_t(0)
    buffers: Any = None
    while True:
        given = room.value
        _answer(_api.snapshot(buffers, ctypes.sizeof(_Buffer), ctypes.byref(room)), "snapshot")
        if room.value <= given:
            break
        buffers = (_Buffer * room.value)()
    return [Buffer(each.address, each.bytes, each.resident_bytes, each.pinned_bytes, each.device)
            for each in (buffers or ())[:room.value]]


def pin(what: Any, size: Optional[int] = None) -> bool:
    """Brings it to the GPU and keeps it there until unpin() of the same, or until it is freed. Pins count."""
    return _move("pin", what, size)


def unpin(what: Any, size: Optional[int] = None) -> bool:
    """Ends a pin of the same memory."""
    return _move("unpin", what, size)


def prefetch(what: Any, size: Optional[int] = None) -> bool:
    """Brings it to the GPU; it moves like everything else from then on."""
    return _move("prefetch", what, size)


def evict(what: Any, size: Optional[int] = None) -> bool:
    """Moves it to the host. False: some of it stays, for unfinished work uses it."""
    return _move("evict", what, size)


def limit(size: int) -> bool:
    """Managed memory takes no more of each GPU than so many bytes; 0: what it could before."""
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 64:
        raise ValueError(f"a limit of {size!r} bytes")
    return _api is not None and _answer(_api.limit(size), f"limit of {size}")


def pause() -> bool:
    """Gives the GPU's memory to others until something is needed again. False: some of it stays, for it is in use."""
    return _api is not None and _answer(_api.pause(), "pause")


def resume() -> bool:
    """Brings back what pause() moved out, as far as there is room."""
    return _api is not None and _answer(_api.resume(), "resume")


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Names what happens meanwhile in this thread, in the trace and in `lms report`. A context, or a decorator."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a region is a str, not {type(name).__name__}")
    if _api is not None:
        _answer(_api.region_begin(name.encode()), "region")
    try:
        yield
    finally:
        if _api is not None:
            _api.region_end()


def _program() -> str:
    from lms import PROGRAM

    found = PROGRAM if os.path.exists(PROGRAM) else shutil.which("lms")
    if found is None:
        raise FileNotFoundError("no program lms to read traces with, neither beside this package nor on PATH")
    return found


_NUMBERS = ("gpu", "begin_ns", "end_ns", "allocation", "chunk", "bytes")


def load_trace(path: Union[str, "os.PathLike[str]"]) -> Any:
    """The events of a trace (LMS_TRACE), one a row, as `lms export --csv` has them: a pandas.DataFrame, or a list of dicts where
    there is no pandas. ValueError: it is no trace."""
    # Of the program's own shim, if it runs under one, the tool has no need.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([_program(), "export", "--csv", os.fspath(path)], capture_output=True, check=False, env=environment)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode(errors="replace").strip())
    text = done.stdout.decode(errors="replace")
    try:
        import pandas
    except ImportError:
        rows: List[Dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
        for row in rows:
            row.update({name: int(row[name]) if row[name] else None for name in _NUMBERS})
        return rows
    return pandas.read_csv(io.StringIO(text), dtype={name: "Int64" for name in _NUMBERS})
