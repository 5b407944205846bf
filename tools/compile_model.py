#!/usr/bin/env python3
"""Compiles a model into AOTInductor packages, each for one kind of device, tile, batch, precision
and layout.

  tools/compile_model.py MODEL --out FOLDER --tile 512 --batches 8,16 --precision fp16
                         [--layout nhwc] [--device cuda:0] [--max-autotune]

MODEL is an exported program (NAME.pt2), or a TorchScript file. Of TorchScript the exported program
of the same name beside it is compiled (tools/export_model.py makes both), once it has given the
same answers; without one the TorchScript is converted, which works for models without loops and
branches. Each package is
FOLDER/NAME.<gpu>.<tile>.<batch>.<precision>.<layout>.pt2. It takes one tensor of exactly that
shape, type and layout, and says so in extra/tilery_package.json:

  gpu, capability     what it was compiled for and runs on; "cpu" and its vector extensions and name
  torch               the version that it was compiled with and is loaded by
  tile, batch         [y, x] or [z, y, x] in input voxels; tiles in a batch
  precision, layout   fp32 (IEEE), tf32, fp16 or bf16; nchw or nhwc (also in 3-D: channels last)
  channels_in, channels_out, scale    of the tensors; scale as in tilery.json
  io_dtype            of input and output: f32, f16 or bf16
  model_hash          of the model file, as --model-hash gives it, else its SHA-256
  libraries           hash of the libraries of custom operators that were loaded; "" without any
  options             what was asked of the compiler beyond its defaults

A package that is there with the same values is kept. Processes that want the same package wait for
the first one to compile it. `tilery compile` calls this script. Standard output is one line: {"packages": [{..., "path", "seconds",
"reused"}], "failed": [{"path", "reason"}]}. Exit code: 0, 1 if a compilation failed, 2 if there is
something to put right first.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cuda_paths import make_cuda_findable  # noqa: E402
from process_group import end_with_stdin  # noqa: E402

TORCH = "2.11.0"  # what programs that load the packages are built with, unless --torch says else
PRECISIONS = {"fp32": "f32", "tf32": "f32", "fp16": "f16", "bf16": "bf16"}
LAYOUTS = ("nchw", "nhwc")
# A lane of the engine is a thread, and results must not depend on how many there are. And libtorch,
# which brings CUDA, is not for processes that work on CPUs: they have loaded what packages need.
ON_CPU = {"cpp.threads": 1, "aot_inductor.link_libtorch": False}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Holds the lock of a target among all processes, also of other hosts on a shared folder. The
    kernel drops it if this process dies. The file goes when it is done with."""
    path = target.with_name(f".{target.name}.lock")
    while True:
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{target.name}: another process compiles it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:  # the one before may have removed the file while this one waited
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                break
        except FileNotFoundError:
            pass
        os.close(lock)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def find_program(model: Path, kind_of, refused) -> Path:
    """What to compile for `model`: itself, or the exported program beside a TorchScript file."""
    kind = kind_of(model)
    if kind == "exported":
        return model
    if kind == "package":
        raise refused(f"{model}: is compiled already; give the exported program it was made from")
    program = model.with_suffix(".pt2")
    return program if program.exists() and kind_of(program) == "exported" else model


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return "sha256:" + digest.hexdigest()


class Target:
    """One package: what it is for, and where it goes."""

    def __init__(self, args, device, batch: int, precision: str, layout: str):
        self.device, self.batch, self.precision, self.layout = device, batch, precision, layout
        slug = re.sub(r"[^A-Za-z0-9]+", "-", device.name).strip("-")
        tile = "x".join(map(str, args.tile))
        self.path = args.out / f"{args.name}.{slug}.{tile}.{batch}.{precision}.{layout}.pt2"
        options = {**(ON_CPU if device.name == "cpu" else {}), **args.inductor,
                   **({"max_autotune": True} if args.max_autotune else {})}
        self.wanted = {"gpu": device.name, "capability": device.capability, "torch": device.torch,
                       "tile": args.tile, "batch": batch, "precision": precision, "layout": layout,
                       "io_dtype": PRECISIONS[precision], "model_hash": args.model_hash,
                       "libraries": args.libraries_hash, "options": options}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def listed(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[int]:
        values = [int(part) for part in re.split("[,x]", text)]
        if min(values) < 1:
            raise ValueError
        return values

    def setting(text: str) -> tuple[str, object]:
        key, value = text.split("=", 1)
        try:
            return key, json.loads(value)
        except json.JSONDecodeError:
            return key, value

    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the packages")
    parser.add_argument("--tile", type=numbers, required=True, help="one number, or one per axis")
    parser.add_argument("--batches", type=numbers, required=True, metavar="N,N")
    parser.add_argument("--precision", type=listed, default=["fp16"], help="default: fp16")
    parser.add_argument("--layout", type=listed, default=["nhwc"], help="default: nhwc")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu; default: cuda:0")
    parser.add_argument("--name", help="first part of the file names; default: the model's")
    parser.add_argument("--channels", type=int, help="that the model takes, if it doesn't say")
    parser.add_argument("--model-hash", help="hash of MODEL, as the caller counts it")
    parser.add_argument("--library", type=Path, action="append", default=[], metavar="FILE",
                        help="a library of custom operators, loaded before the model")
    parser.add_argument("--libraries-hash", help="hash of all of them, as the caller counts it")
    parser.add_argument("--torch", default=TORCH, help="version that will load the packages")
    parser.add_argument("--max-autotune", action="store_true",
                        help="let the compiler try many forms of each kernel: minutes, not seconds")
    parser.add_argument("--inductor", type=setting, action="append", default=[],
                        metavar="KEY=VALUE", help="any other setting of torch._inductor.config")
    parser.add_argument("--end-with-stdin", action="store_true",
                        help="end, with all that was started, when standard input closes")
    args = parser.parse_args(argv)
    for values, allowed, flag in ((args.precision, PRECISIONS, "--precision"),
                                  (args.layout, LAYOUTS, "--layout")):
        for value in values:
            if value not in allowed:
                parser.error(f"{flag}: '{value}' is none of {', '.join(allowed)}")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", args.device):
        parser.error(f"--device: '{args.device}' is neither cpu nor cuda:N")
    args.inductor = dict(args.inductor)
    args.name = args.name or args.model.stem
    return args


def main() -> int:
    args = parse()
    if args.end_with_stdin:
        end_with_stdin()
    # Compilers and autotuners print what they like; standard output is for the report alone.
    report_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if args.device != "cpu":
        make_cuda_findable()
    warnings.simplefilter("ignore")  # of Torch about itself; what concerns the model raises
    import model_files
    import package_build
    try:
        device = package_build.find_device(args.device, args.torch)
        args.out.mkdir(parents=True, exist_ok=True)
        package_build.load_libraries(args.library)
        program = find_program(args.model, model_files.kind_of, model_files.Refused)
        args.model_hash = args.model_hash or sha256(args.model)
        args.libraries_hash = args.libraries_hash or " ".join(map(sha256, args.library))
        source = package_build.Source(program, args.model, args.tile, args.channels, device)
        args.tile = source.tile
    except (model_files.Refused, OSError) as reason:
        say(f"error: {reason}")
        return 2
    report: dict = {"packages": [], "failed": []}
    targets = [Target(args, device, batch, precision, layout) for batch in args.batches
               for precision in args.precision for layout in args.layout]
    for target in targets:
        began = time.monotonic()
        try:
            with only_one(target.path):
                there = package_build.existing(target.path, target.wanted)
                if there is None:
                    say(f"{target.path.name}: compiling")
                facts = there or package_build.build(source, target)
        except Exception as error:  # one that can't be compiled leaves the others as they are
            reason = str(error) or type(error).__name__
            say(f"error: {target.path.name}: {reason}")
            report["failed"].append({"path": str(target.path), "reason": reason})
            continue
        seconds = round(time.monotonic() - began, 1)
        report["packages"].append({**facts, "path": str(target.path), "seconds": seconds,
                                   "reused": there is not None})
        say(f"{target.path.name}: " + ("is there" if there else f"compiled in {seconds} s"))
    print(json.dumps(report), file=report_to, flush=True)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
