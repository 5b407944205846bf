"""Model files as Tilery reads them: TorchScript, exported programs and compiled packages.

All three are zip archives with a contract in `extra/tilery.json`: what the model takes and gives,
in the keys of a job's `model:` map. Files are written under a name that no one takes for a model
and renamed when they are whole, so a file under its own name is complete.
"""
from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Iterator

import torch
from torch import Tensor, nn

CONTRACT = "tilery.json"
LARGEST_EXTENT = 4096  # of a tile along one axis, in an exported program


class Refused(Exception):
    """What a person has to change; the message says how."""


@contextlib.contextmanager
def published(path: Path) -> Iterator[Path]:
    """Gives a path to write to, in a folder of its own beside `path`; renames it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".partial",
                                     dir=path.parent) as folder:
        whole = Path(folder) / path.name
        yield whole
        with open(whole, "rb") as file:
            os.fsync(file.fileno())
        os.replace(whole, path)
    place = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def kind_of(path: Path) -> str:
    """'torchscript', 'exported' or 'package'; Refused for anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.split("/", 1)[-1] for name in archive.namelist()]
    except FileNotFoundError:
        raise Refused(f"{path}: there is no such file") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise Refused(f"{path}: no model file: {error}") from None
    if any("aotinductor/" in name for name in names):
        return "package"
    if any(name.startswith("models/") for name in names):
        return "exported"
    if "data.pkl" in names and any(name.startswith("code/") for name in names):
        return "torchscript"
    raise Refused(f"{path}: a zip archive, but neither TorchScript nor an exported program")


def read_extra(path: Path, name: str) -> dict:
    """The JSON document `extra/NAME` of a model file; empty if there is none."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if entry == f"extra/{name}" or entry.split("/", 1)[-1] == f"extra/{name}":
                return json.loads(archive.read(entry))
    return {}


def scales(contract: dict) -> list[Fraction]:
    """Output voxels per input voxel, for each axis in the order of the tensor."""
    scale = contract.get("scale", 1)
    per_axis = scale if isinstance(scale, list) else [scale] * contract["dims"]
    return [Fraction(s) for s in per_axis]


def trial_input(shape: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Values between 0.1 and 0.6 that repeat only after 101 voxels: the same everywhere."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 37 % 101 + 20) / 200).reshape(shape).to(dtype)


def check_contract(net, contract: dict, tile: list[int]) -> None:
    """Runs `net` once on a batch of two tiles; Refused if the answer contradicts the contract."""
    channels = contract["channels"]
    with torch.inference_mode():
        answer = net(trial_input([2, channels["in"], *tile]))
    if not isinstance(answer, Tensor):
        raise Refused(f"the model returns {type(answer).__name__}; it must return one tensor")
    want = [2, channels["out"], *(int(n * s) for n, s in zip(tile, scales(contract)))]
    if list(answer.shape) != want:
        raise Refused(f"on a batch of two tiles of {tile} the model returns {list(answer.shape)}; "
                      f"its contract (scale, channels.out) says {want}")
    if not answer.isfinite().all():
        raise Refused("the model's answer to values between 0.1 and 0.6 is not finite")


def save_script(script: torch.jit.ScriptModule, contract: dict, path: Path) -> None:
    """Writes TorchScript with its contract, without the source paths kept for its messages."""
    with published(path) as whole:
        draft = whole.with_suffix(".draft")
        torch.jit.save(script, str(draft), _extra_files={CONTRACT: json.dumps(contract).encode()})
        reader = torch._C.PyTorchFileReader(str(draft))
        writer = torch._C.PyTorchFileWriter(str(whole))
        # The writer adds its own version, byte order and serialization id.
        own = {"version", "byteorder", ".data/version", ".data/serialization_id",
               ".format_version", ".storage_alignment"}
        for record in reader.get_all_records():
            if record not in own and not record.endswith(".debug_pkl"):
                data = reader.get_record(record)
                writer.write_record(record, data, len(data))
        writer.write_end_of_file()
        del reader
        draft.unlink()


def save_torchscript(net: nn.Module, contract: dict, path: Path, tile: list[int], *,
                     trace: bool) -> None:
    """Writes a net as TorchScript.

    A traced convolution carries the cuDNN switches of the moment (autotuning, determinism, TF32)
    whatever is set when it runs; a scripted one obeys those of the program that runs it.
    """
    example = trial_input([2, contract["channels"]["in"], *tile])
    with torch.no_grad():
        script = torch.jit.trace(net, example) if trace else torch.jit.script(net)
    save_script(script, contract, path)


def export(net: nn.Module, contract: dict, tile: list[int]) -> torch.export.ExportedProgram:
    """Any batch; any tile of the contract's multiples, or `tile` alone where its contract has
    `tiling.tile` equal to `multiple`, which leaves no other."""
    dim = torch.export.Dim
    multiple = contract.get("multiple", 1)
    per_axis = multiple if isinstance(multiple, list) else [multiple] * len(tile)
    shape = {0: dim("batch", min=1, max=1 << 20)}
    if contract.get("tiling", {}).get("tile") != multiple:
        for axis, m in enumerate(per_axis):
            name = "zyx"[axis - len(tile)]
            extent = dim(name, min=1, max=LARGEST_EXTENT // m)
            shape[2 + axis] = m * extent if m > 1 else extent
    example = trial_input([2, contract["channels"]["in"], *tile])
    with torch.no_grad():
        return torch.export.export(net, (example,), dynamic_shapes=(shape,), strict=False)


def save_program(program: torch.export.ExportedProgram, contract: dict, path: Path) -> None:
    with published(path) as whole:
        torch.export.save(program, str(whole), extra_files={CONTRACT: json.dumps(contract)})


def save_both(net: nn.Module, contract: dict, path: Path, tile: list[int], *,
              trace: bool) -> list[Path]:
    """NAME.pt (TorchScript) and beside it NAME.pt2 (exported program) of the same weights."""
    net = net.eval().requires_grad_(False)
    check_contract(net, contract, tile)
    save_torchscript(net, contract, path, tile, trace=trace)
    program = path.with_suffix(".pt2")
    save_program(export(net, contract, tile), contract, program)
    return [path, program]
