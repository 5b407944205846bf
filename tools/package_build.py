"""What tools/compile_model.py does with Torch: from an exported program to one package."""
from __future__ import annotations

import contextlib
import json
import re
import shutil
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch._export.converter import TS2EPConverter
from torch.export.passes import move_to_device_pass
from torch.export.pt2_archive._package import package_pt2

from model_files import CONTRACT, Refused, kind_of, published, read_extra, trial_input

PACKAGE = "tilery_package.json"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class Device(NamedTuple):
    torch_device: torch.device
    name: str  # "NVIDIA H100 80GB HBM3", "cpu"
    capability: str  # "9.0"; of a CPU cpu_kind()
    torch: str  # "2.11.0"


def cpu_kind() -> str:
    """Vector extensions and name of the processor, as the worker counts them: compilers use all
    that the processor at hand has, so a package runs on no other."""
    name = "unknown"
    with contextlib.suppress(OSError), open("/proc/cpuinfo", errors="surrogateescape") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.startswith(("model name", "CPU part", "cpu model")) and value.strip(" \t\n"):
                name = value.lstrip(" \t").rstrip("\n")
                break
    return f"{torch.backends.cpu.get_cpu_capability().lower()}/{name}"


def find_device(name: str, wanted_torch: str) -> Device:
    version = torch.__version__.split("+")[0]
    if version != wanted_torch:
        raise Refused(f"this Python has torch {version}, but packages are for torch {wanted_torch} "
                      f"and load in no other: pip install torch=={wanted_torch}, or say with "
                      f"--torch what will load them")
    if name == "cpu":
        return Device(torch.device("cpu"), "cpu", cpu_kind(), version)
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()
            why = "CUDA sees no card"
        except Exception as error:
            why = str(error).splitlines()[0]
        raise Refused(f"--device {name}: no GPU can be used here ({why}). Packages are compiled on "
                      f"the kind of card that runs them; --device cpu compiles for the processor")
    device = torch.device(name)
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise Refused(f"--device {name}: this process sees {torch.cuda.device_count()} GPU(s), "
                      f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    torch.cuda.set_device(index)
    major, minor = torch.cuda.get_device_capability(index)
    return Device(torch.device("cuda", index), torch.cuda.get_device_name(index),
                  f"{major}.{minor}", version)


def load_libraries(paths: list[Path]) -> None:
    """Makes custom operators known; a model that uses them can't even be read without."""
    for path in paths:
        try:
            torch.ops.load_library(str(path.resolve()))
        except OSError as error:
            raise Refused(f"--library {path}: can't be loaded: {error}") from error


def unknown_operators(program: Path) -> list[str]:
    """Of those that an exported program calls: Torch says only that it can't read the file."""
    with zipfile.ZipFile(program) as archive:
        texts = [archive.read(name).decode(errors="replace") for name in archive.namelist()
                 if "models/" in name and name.endswith(".json")]
    called = {call for text in texts for call in re.findall(r'"torch\.ops\.(\w+)\.(\w+)\.', text)}
    return sorted(f"{space}::{name}" for space, name in called
                  if not hasattr(getattr(torch.ops, space), name))


def existing(path: Path, wanted: dict) -> dict | None:
    """What the package at `path` says of itself, if it is whole and is what was wanted."""
    try:
        if kind_of(path) != "package":
            return None
        facts = read_extra(path, PACKAGE)
    except (Refused, OSError, zipfile.BadZipFile, json.JSONDecodeError):
        return None
    return facts if all(facts.get(key) == value for key, value in wanted.items()) else None


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """A copy in that layout, with its strides also where one channel leaves them open."""
    if layout == "nchw" or tensor.dim() not in FORMATS:
        return tensor.contiguous()
    like = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device,
                       memory_format=FORMATS[tensor.dim()])
    return like.copy_(tensor)


class SameOut(torch.nn.Module):
    """Gives its answer in the type and the layout of the input, whatever the model ends with."""

    def __init__(self, model: torch.nn.Module, dtype: torch.dtype, layout: str):
        super().__init__()
        self.model, self.dtype, self.layout = model, dtype, layout

    def forward(self, x: Tensor) -> Tensor:
        y = self.model(x).to(self.dtype)
        last = self.layout == "nhwc" and y.dim() in FORMATS
        return y.contiguous(memory_format=FORMATS[y.dim()] if last else torch.contiguous_format)


class Source:
    """An exported program, or TorchScript that converts to one, and what holds for all packages."""

    def __init__(self, program: Path, model: Path, tile: list[int], channels: int | None,
                 device: Device):
        self.program, self.model, self.device = program, model, device
        self.converted = kind_of(program) == "torchscript"
        self.contract = read_extra(program, CONTRACT) or read_extra(model, CONTRACT)
        self.channels = self.contract.get("channels", {}).get("in", channels)
        dims = self.contract.get("dims", len(tile))
        self.tile = tile * dims if len(tile) == 1 else tile
        self.loaded = self._load()
        shape = self._input_shape()
        if len(self.tile) != len(shape) - 2:
            raise Refused(f"--tile: {len(self.tile)} numbers for a model of {len(shape) - 2} axes; "
                          f"give one for each")
        if isinstance(shape[1], int):
            self.channels = shape[1]
        elif self.channels is None:
            raise Refused(f"{program}: doesn't say how many channels it takes; give --channels N")
        for axis, (have, want) in enumerate(zip(shape[2:], self.tile)):
            if isinstance(have, int) and have != want:
                raise Refused(f"{program}: was exported for a tile of {have} voxels along axis "
                              f"{axis}, not {want}; use that, or export it with open extents "
                              f"(tools/export_model.py does)")
        if model != program or self.converted:
            self._compare()

    def _load(self) -> torch.export.ExportedProgram:
        if not self.converted:
            try:
                return torch.export.load(str(self.program))
            except Exception as error:
                missing = unknown_operators(self.program)
                if missing:
                    raise Refused(f"{self.program}: uses the operators {', '.join(missing)}, which "
                                  f"Torch does not know; name the library that defines them "
                                  f"(--library; in jobs model.libraries)") from error
                reason = (str(error) or type(error).__name__).strip().splitlines()[0]
                raise Refused(f"{self.program}: can't be read as an exported program: "
                              f"{reason}") from error
        if self.channels is None:
            raise Refused(f"{self.model}: doesn't say how many channels it takes; give --channels N")
        # A batch of two, as programs treat one as a case of its own.
        example = trial_input([2, self.channels, *self.tile])
        try:
            with torch.no_grad():
                script = torch.jit.load(str(self.model), map_location="cpu").eval().float()
                return TS2EPConverter(script, (example,)).convert()
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise Refused(
                f"{self.model}: no exported program {self.model.with_suffix('.pt2').name} lies "
                f"beside it, and this TorchScript can't be turned into one ({reason}). Make both "
                f"from the model's Python code, a function that returns the module with its "
                f"weights: tools/export_model.py CODE.py:FUNCTION --out {self.model}") from error

    def _input_shape(self) -> list:
        """Of the one input: numbers, and None for what is open."""
        signature = self.loaded.graph_signature
        inputs, outputs = signature.user_inputs, signature.user_outputs
        if len(inputs) != 1 or len(outputs) != 1:
            raise Refused(f"{self.program}: takes {len(inputs)} inputs and gives {len(outputs)}; a "
                          f"model takes one tensor and gives one")
        node = next(n for n in self.loaded.graph.nodes if n.name == inputs[0])
        shape = [n if isinstance(n, int) else None for n in node.meta["val"].shape]
        if len(shape) not in FORMATS:
            raise Refused(f"{self.program}: takes a tensor of {len(shape)} axes; a model takes "
                          f"[N, C, Y, X] or [N, C, Z, Y, X]")
        return shape

    def _compare(self) -> None:
        """Refuses a program that is not of the model's weights, or an older one."""
        multiple = self.contract.get("multiple", 1)
        per_axis = multiple if isinstance(multiple, list) else [multiple] * len(self.tile)
        small = [min(t, -(-32 // m) * m) for t, m in zip(self.tile, per_axis)]
        shape = [1, self.channels, *(self.tile if self.converted else small)]
        try:
            x = trial_input(shape)
            with torch.inference_mode():
                script = torch.jit.load(str(self.model), map_location="cpu").eval().float()
                want = script(x)
                got = self.loaded.module(check_guards=False)(x)
        except (RuntimeError, AssertionError) as error:
            raise Refused(f"{self.program} and {self.model} can't be compared on values of {shape}: "
                          f"{str(error).splitlines()[0]}") from error
        if not isinstance(want, Tensor) or got.shape != want.shape:
            raise Refused(f"{self.program} and {self.model} give answers of different shape to "
                          f"values of {shape}: they are not the same model")
        off = (got - want).abs().max().item()
        if not off <= 1e-3 * max(1.0, want.abs().max().item()):
            raise Refused(f"{self.program} and {self.model} differ by {off:.3g} on the same values: "
                          f"they are not the same model; export it again (tools/export_model.py)")

    def module(self, dtype: torch.dtype, layout: str) -> torch.nn.Module:
        """A fresh copy on the device, its weights in the precision and the layout."""
        program = self._load()
        if self.device.torch_device.type != "cpu":
            program = move_to_device_pass(program, str(self.device.torch_device))
        module = program.module(check_guards=False)
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point():
                continue
            data = tensor.data.to(dtype)
            if not data.isfinite().all() and tensor.data.isfinite().all():
                raise Refused(f"weight {name} reaches {tensor.data.abs().max().item():.3g}, beyond "
                              f"what {dtype} holds; use bf16, tf32 or fp32")
            tensor.data = laid_out(data, layout)
        return SameOut(module, dtype, layout)


def build(source: Source, target) -> dict:
    """Compiles and publishes one package; returns what its PACKAGE says."""
    wanted = target.wanted
    dtype = DTYPES[wanted["io_dtype"]]
    # Both are read when kernels are chosen; IEEE is promised to fp32 only.
    tf32 = target.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    example = trial_input([target.batch, source.channels, *source.tile], dtype)
    example = laid_out(example.to(source.device.torch_device), target.layout)

    with torch.no_grad():
        module = source.module(dtype, target.layout)
        try:
            fixed = torch.export.export(module, (example,), strict=False)
        except RuntimeError as error:
            raise Refused(f"the model doesn't run on {list(example.shape)} in {target.precision}: "
                          f"{str(error).splitlines()[0]}") from error
        output = next(iter(fixed.graph.find_nodes(op="output"))).args[0][0].meta["val"]
        facts = {**wanted, **_geometry(source, target.batch, output)}
        options = {"aot_inductor.package": True, **wanted["options"]}
        files = torch._inductor.aot_compile(fixed.module(check_guards=False), (example,),
                                            options=options)
    extra = {PACKAGE: json.dumps(facts)}
    if source.contract:
        extra[CONTRACT] = json.dumps(source.contract)
    # Whoever calls holds the target's lock, so what lies here half written has no owner any more.
    for left in target.path.parent.glob(f".{target.path.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    with published(target.path) as whole:
        package_pt2(str(whole), aoti_files={"model": files}, extra_files=extra)
        if existing(whole, wanted) is None:
            raise RuntimeError(f"the package that was written can't be read back: {whole}")
    return facts


def _geometry(source: Source, batch: int, output: Tensor) -> dict:
    shape = [int(n) for n in output.shape]
    if len(shape) != 2 + len(source.tile) or shape[0] != batch:
        raise Refused(f"the model gives {shape} for {batch} tiles of {source.tile}; it must give "
                      f"one answer per tile, with as many axes")
    ratios = [Fraction(o, i) for o, i in zip(shape[2:], source.tile)]
    scale = [int(r) if r.denominator == 1 else str(r) for r in ratios]
    same = all(s == scale[0] for s in scale)
    return {"channels_in": source.channels, "channels_out": shape[1],
            "scale": scale[0] if same else scale}
