"""Reads .tvdb files, which hold compressed OpenVDB grids, as numpy arrays.

    import tvdb

    with tvdb.open("smoke.tvdb") as file:
        density = file["density"]
        values, active = density.read(((0, 0, 0), (64, 64, 64)))
        for origin, active, values in density.leaves():
            ...

Arrays have the axes x, y, z of the grid's index space and, of vectors, a last one of 3 components. Boxes are (begin, end),
half-open, in voxels, and may reach anywhere. Only the regions of 128^3 voxels that a box touches are read and decoded.

It needs numpy and libtvdb.so.0, which is looked for where the environment variable TVDB_LIBRARY says, beside this file, in
../lib, ../../lib and ../build/lib from it, and where the system has libraries. Threads may share a file.
"""
import ctypes
import itertools
import os
import pathlib
import struct

import numpy as np

__all__ = ["Error", "File", "Grid", "open"]

_LIBRARY = "libtvdb.so.0"
_OK, _END, _ARGUMENT, _NOT_FOUND, _BAD_FILE, _NOT_CODED, _SHORTAGE, _INTERNAL = range(8)
_WHOLE_FILE = ctypes.c_size_t(-1).value
_TYPES = {0: None, 1: np.float32, 2: np.float64}


class Error(Exception):
    """What went wrong, with the file and the place. `code`: tvdb_code of tvdb.h, as a number."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class _Info(ctypes.Structure):
    _fields_ = [("label", ctypes.c_char_p), ("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("grid_class", ctypes.c_char_p),
                ("tree", ctypes.c_size_t), ("number", ctypes.c_int), ("components", ctypes.c_int), ("half", ctypes.c_int),
                ("background", ctypes.c_double * 3), ("map", ctypes.c_char_p), ("has_matrix", ctypes.c_int),
                ("index_to_world", ctypes.c_double * 16), ("bound", ctypes.c_double), ("step", ctypes.c_double),
                ("least", ctypes.c_double), ("most", ctypes.c_double), ("max_error", ctypes.c_double), ("rms", ctypes.c_double),
                ("psnr", ctypes.c_double), ("numbers", ctypes.c_int64), ("bytes", ctypes.c_int64), ("regions", ctypes.c_int64),
                ("leaves_begin", ctypes.c_int64 * 3), ("leaves_end", ctypes.c_int64 * 3), ("active_voxels", ctypes.c_int64),
                ("active_begin", ctypes.c_int64 * 3), ("active_end", ctypes.c_int64 * 3)]


class _Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("value", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class _Leaf(ctypes.Structure):
    _fields_ = [("origin", ctypes.c_int32 * 3), ("active", ctypes.c_uint64 * 8), ("f32", ctypes.c_void_p), ("f64", ctypes.c_void_p)]


def _load():
    here = pathlib.Path(__file__).resolve().parent
    places = [here, here / "../lib", here / "../../lib", here / "../build/lib"]
    named = os.environ.get("TVDB_LIBRARY")
    found = [named] if named else [str(place / _LIBRARY) for place in places if (place / _LIBRARY).exists()]
    lib = ctypes.CDLL((found + [_LIBRARY])[0])
    box = ctypes.c_int64 * 3
    file, size, pointer = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER
    lib.tvdb_message.restype = ctypes.c_char_p
    lib.tvdb_open.argtypes = [ctypes.c_char_p, pointer(file)]
    lib.tvdb_close.argtypes = [file]
    lib.tvdb_close.restype = None
    lib.tvdb_grid_count.argtypes, lib.tvdb_grid_count.restype = [file], size
    lib.tvdb_grid_info.argtypes = [file, size, pointer(_Info)]
    lib.tvdb_metadata.argtypes = [file, size, size, pointer(_Entry)]
    for name in ("tvdb_read_f32", "tvdb_read_f64"):
        getattr(lib, name).argtypes = [file, size, box, box, file, size, file]
    lib.tvdb_leaves_open.argtypes = [file, size, pointer(file)]
    lib.tvdb_leaves_next.argtypes = [file, pointer(_Leaf)]
    lib.tvdb_leaves_close.argtypes = [file]
    lib.tvdb_leaves_close.restype = None
    return lib


_lib = _load()


def _check(code):
    if code != _OK:
        raise Error(code, _lib.tvdb_message().decode(errors="replace"))


def _text(raw):
    return raw.decode(errors="replace")


def _value(type_, raw):
    """Of metadata; bytes where the type is unknown here."""
    if type_ == "string":
        return _text(raw)
    if type_ == "bool":
        return raw != b"\0"
    single = {"int32": "i", "int64": "q", "float": "f", "double": "d"}
    vector = {"i": "i", "s": "f", "d": "d"}
    if type_ in single:
        form = single[type_]
    elif type_[:3] == "vec" and type_[3:4] in ("2", "3", "4") and type_[4:] in vector:
        form = type_[3] + vector[type_[4:]]
    else:
        return raw
    if len(raw) != struct.calcsize("<" + form):
        return raw
    value = struct.unpack("<" + form, raw)
    return value[0] if type_ in single else value


class Grid:
    """A grid of an open file.

    label        its name, or NAME[0], NAME[1], ... where several have it
    info         a dict of what the file says of it: name, type ("float", "vec3s", ...), class, components, dtype (None: it can't
                 be read here), half, background, map, index_to_world (4 x 4, takes (x, y, z, 1); None if it is not linear), bound,
                 step, least, most, max_error, rms, psnr, numbers, bytes, regions, leaves (a box around them, or None), tree (the label
                 of the grid whose tree it has), active_voxels and active (a box), which are None if OpenVDB did not note them
    metadata     a dict of its own
    """

    def __init__(self, file, index):
        self._file, self._index = file, index
        raw = _Info()
        _check(_lib.tvdb_grid_info(file._handle(), index, ctypes.byref(raw)))
        self._tree = raw.tree
        self.label = _text(raw.label)
        components = raw.components
        dtype = _TYPES[raw.number]

        def box(begin, end):
            begin, end = tuple(begin), tuple(end)
            return (begin, end) if begin != end else None

        background = tuple(raw.background)[:components]
        self.info = {
            "name": _text(raw.name), "type": _text(raw.type), "class": _text(raw.grid_class), "components": components,
            "dtype": np.dtype(dtype) if dtype else None, "half": bool(raw.half),
            "background": background[0] if components == 1 else background, "map": _text(raw.map),
            "index_to_world": np.array(raw.index_to_world).reshape(4, 4) if raw.has_matrix else None,
            **{name: getattr(raw, name) for name in ("bound", "step", "least", "most", "max_error", "rms", "psnr", "numbers", "bytes",
                                                     "regions")},
            "leaves": box(raw.leaves_begin, raw.leaves_end), "active_voxels": raw.active_voxels if raw.active_voxels >= 0 else None,
            "active": box(raw.active_begin, raw.active_end)}

    @property
    def metadata(self):
        return self._file._metadata(self._index)

    def _shape(self, *extents):
        return extents + ((3,) if self.info["components"] == 3 else ())

    def _coded(self):
        """Its dtype; an Error that says why if it has none."""
        if self.info["dtype"] is None:
            _check(_lib.tvdb_leaves_open(self._file._handle(), self._index, ctypes.byref(ctypes.c_void_p())))
        return self.info["dtype"]

    def read(self, box=None, dtype=None):
        """The value of each voxel of a box, and which are active: arrays of the shape (nx, ny, nz), of vectors (nx, ny, nz, 3), and of
        bool (nx, ny, nz).

        box    ((x, y, z), (x, y, z)), half-open; by default the one around all leaves, which tiles may reach beyond
        dtype  numpy.float32 or numpy.float64, by default as the grid has it
        """
        own = self._coded()
        dtype = np.dtype(dtype or own)
        begin, end = box if box is not None else self.info["leaves"] or ((0, 0, 0), (0, 0, 0))
        extents = tuple(max(0, int(b) - int(a)) for a, b in zip(begin, end, strict=True))
        values = np.empty(self._shape(*extents), dtype)
        active = np.empty(extents, np.bool_)
        read = {np.dtype(np.float32): _lib.tvdb_read_f32, np.dtype(np.float64): _lib.tvdb_read_f64}[dtype]
        place = ctypes.c_int64 * 3
        _check(read(self._file._handle(), self._index, place(*map(int, begin)), place(*map(int, end)), values.ctypes.data, values.size,
                    active.ctypes.data))
        return values, active

    def leaves(self):
        """Yields (origin, active, values) for each leaf, in the order of the OpenVDB file: a tuple x, y, z; bool (8, 8, 8); and
        (8, 8, 8) or (8, 8, 8, 3) of the grid's dtype, active or not. One region is in memory at a time."""
        dtype = self._coded()
        handle, leaf = ctypes.c_void_p(), _Leaf()
        _check(_lib.tvdb_leaves_open(self._file._handle(), self._index, ctypes.byref(handle)))
        count = 512 * self.info["components"] * dtype.itemsize
        try:
            while True:
                self._file._handle()  # it is open still
                code = _lib.tvdb_leaves_next(handle, ctypes.byref(leaf))
                if code == _END:
                    return
                _check(code)
                values = np.frombuffer(ctypes.string_at(leaf.f32 or leaf.f64, count), dtype).reshape(self._shape(8, 8, 8))
                bits = np.unpackbits(np.frombuffer(bytes(leaf.active), np.uint8), bitorder="little")
                yield tuple(leaf.origin), bits.astype(np.bool_).reshape(8, 8, 8), values
        finally:
            _lib.tvdb_leaves_close(handle)

    def __repr__(self):
        return f"<tvdb.Grid {self.label!r} {self.info['type']}>"


class File:
    """An open .tvdb file; a context manager.

    grids     a list of Grid; file[label] and file[index] give one
    metadata  a dict of the file's own
    """

    def __init__(self, path):
        self._open = ctypes.c_void_p()
        _check(_lib.tvdb_open(os.fsencode(path), ctypes.byref(self._open)))
        self.grids = [Grid(self, index) for index in range(_lib.tvdb_grid_count(self._open))]
        for grid in self.grids:
            grid.info["tree"] = self.grids[grid._tree].label

    def _handle(self):
        if not self._open:
            raise ValueError("the file is closed")
        return self._open

    def _metadata(self, index):
        entries, entry = {}, _Entry()
        for place in itertools.count():
            code = _lib.tvdb_metadata(self._handle(), index, place, ctypes.byref(entry))
            if code == _END:
                return entries
            _check(code)
            entries[_text(entry.name)] = _value(_text(entry.type), ctypes.string_at(entry.value, entry.bytes))

    @property
    def metadata(self):
        return self._metadata(_WHOLE_FILE)

    def __getitem__(self, key):
        if isinstance(key, int):
            return self.grids[key]
        for grid in self.grids:
            if grid.label == key:
                return grid
        raise KeyError(f"there is no grid {key!r}; there are: {', '.join(grid.label for grid in self.grids)}")

    def close(self):
        if self._open:
            _lib.tvdb_close(self._open)
            self._open = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_open", None):
            self.close()


def open(path):  # noqa: A001, as the module's users call it: tvdb.open
    """Opens a .tvdb file. Reads its index and what is said of its grids, no voxels."""
    return File(path)
