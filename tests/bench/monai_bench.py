#!/usr/bin/env python3
"""Tilery beside what people use today, on the same weights, tiles, overlap and window. Prints one table.

    monai_bench.py --work FOLDER [--tilery BIN] [--small]

- MONAI's sliding_window_inference over a volume with the 3-D U-Net in fp16: as it is and with the compiled model, volume
  and result in GPU memory, volume in host memory, and both there; each at the best of its batch sizes, and where the
  result lies in host memory also with MONAI's own buffering. Both sides use the Gaussian window; MONAI clamps its small
  values and Tilery does not. A compiled model takes one batch size, so the last batch is filled up.
- The usual loop over a picture with the x4 upscaler: one tile at a time, fp32, Torch's defaults, upload, run, download, crop.
- Tilery: the "engine" step of `tilery bench`, from host memory to host memory.

--work keeps models and packages for the next time. Each figure is the best of --repeats after a warm-up, in a process
of its own: tiles per second of wall time. --small uses narrow nets and little data, and --device cpu the processor:
that shows that the script runs, not how fast anything is.
MONAI is optional: pip install --no-deps monai
"""
from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import pathlib
import platform
import subprocess
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
PLACES = (("device", "device"), ("host", "device"), ("host", "host"))  # of volume and result
MONAI_HINT = "MONAI is not installed, so its rows are left out: pip install --no-deps monai"


def extra(path) -> dict:
    from model_files import CONTRACT, read_extra
    return read_extra(pathlib.Path(path), CONTRACT)


def starts(n: int, tile: int, stride: int) -> list[int]:
    return [min(s, n - tile) for s in range(0, max(n - tile, 0) + stride, stride) if s - stride + tile < n or s == 0]


def best_seconds(run, repeats: int, device: str) -> float:
    """Wall time of the fastest run after one that warms up; the device has finished in each."""
    def once() -> float:
        began = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - began
    once()
    return min(once() for _ in range(repeats))


def predictor(job: dict, way: dict):
    """The model as MONAI calls it: a batch of at most way["batch"] tiles."""
    device, dtype = torch.device(job["device"]), getattr(torch, job["dtype"])
    if not job["packages"]:
        net = torch.jit.load(job["model"], map_location=device).eval().to(dtype)
        if not way["channels_last"]:
            return net
        net = net.to(memory_format=torch.channels_last_3d)
        return lambda x: net(x.contiguous(memory_format=torch.channels_last_3d))
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cuda.so"):  # a package expects them to be there, as in a worker
        if (libraries / name).exists():
            ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL)
    compiled = torch._inductor.aoti_load_package(job["packages"][str(way["batch"])])
    full = torch.empty([way["batch"], 1, *[job["tile"]] * 3], dtype=dtype, device=device,
                       memory_format=torch.channels_last_3d).zero_()

    def run(x):
        full[:len(x)].copy_(x)
        return compiled(full)[:len(x)]
    return run


def measure_monai(job: dict) -> None:
    """Prints a line for each way that it is run, so that none is lost if a later one ends the process."""
    from monai.inferers import sliding_window_inference
    device, extent, tile = job["device"], job["extent"], job["tile"]
    torch.backends.cudnn.benchmark = True
    place = {"device": device, "host": "cpu"}
    volume = torch.rand([1, 1, *[extent] * 3], generator=torch.Generator().manual_seed(1))
    volume = volume.to(getattr(torch, job["dtype"])).to(place[job["input"]])
    tiles = len(starts(extent, tile, tile - job["overlap"])) ** 3
    for way in job["ways"]:
        try:
            net = predictor(job, way)

            def run():
                return sliding_window_inference(
                    volume, (tile,) * 3, way["batch"], net, overlap=job["overlap"] / tile, mode="gaussian",
                    sw_device=device, device=place[job["output"]], buffer_steps=way["buffer"])
            with torch.inference_mode():
                answer = {"tiles_per_s": tiles / best_seconds(run, job["repeats"], device)}
        except RuntimeError as error:  # out of memory, most often: smaller batches still have their say
            answer = {"error": str(error).splitlines()[0][:120]}
        print(json.dumps({**way, **answer}), flush=True)


def measure_loop(job: dict) -> None:
    """What the scripts of upscalers do: every tile with its border up, through the net, cropped, down."""
    tile, overlap, scale, device = job["tile"], job["overlap"], job["scale"], job["device"]
    height, width = job["extent"], job["extent"] * 3 // 2
    picture = torch.randint(256, (1, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    net = torch.jit.load(job["model"], map_location=device).eval()
    spots = [(y, x) for y in starts(height, tile, tile - overlap) for x in starts(width, tile, tile - overlap)]
    half = overlap // 2

    def run():
        result = torch.zeros([1, 3, height * scale, width * scale])
        values = picture.float() / 255
        for y, x in spots:
            out = net(values[..., y:y + tile, x:x + tile].to(device)).cpu()
            top, left = (half if y else 0), (half if x else 0)
            result[..., (y + top) * scale:(y + tile) * scale, (x + left) * scale:(x + tile) * scale] = \
                out[..., top * scale:, left * scale:]
        return (result.clamp(0, 1) * 255).round().to(torch.uint8)
    with torch.inference_mode():
        seconds = best_seconds(run, job["repeats"], device)
    print(json.dumps({"tiles_per_s": len(spots) / seconds}))


MEASURES = {"monai": measure_monai, "loop": measure_loop}


def in_child(kind: str, job: dict) -> list[dict]:
    """Measurements in a process of their own; what ends it is the last entry."""
    done = subprocess.run([sys.executable, __file__, "--measure", kind, json.dumps(job)], capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        answers.append({"error": f"ended with {done.returncode}: {lines[-1][:120] if lines else 'no message'}"})
    return answers


def ours(tilery: str, model: pathlib.Path, job: dict, package: str | None = None) -> float | str:
    """Tiles per second of the engine from host memory to host memory, or why there is no figure."""
    picture = "scale" in job
    size = [job["extent"], job["extent"] * 3 // 2] if picture else [job["extent"]]  # the data of the other side
    sample = "u8" if picture else {"float32": "f32", "float16": "f16"}[job["dtype"]]
    command = [tilery, "bench", str(model), "--json", "--steps", "engine", "--size", *map(str, size), "--dtype", sample,
               "--tile", str(job["tile"]), "--overlap", str(job["overlap"]), "--window", job["window"],
               "--precision", job["precision"], "--device", job["device"],
               *(["--package", package] if package else ["--model.compile", "off"])]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    return float(json.loads(done.stdout)["ladder"]["engine"]["tiles_per_s"])


def ours_compiled(tilery: str, model: pathlib.Path, job: dict, made: dict[int, str]) -> float | str:
    """The best of the packages, which are those that the other side gets."""
    if job["device"] == "cpu":
        return "for GPUs only"
    rates = [ours(tilery, model, job, package) for package in made.values()] or ["no package"]
    return max((rate for rate in rates if isinstance(rate, float)), default=rates[0])


def make_models(work: pathlib.Path, small: bool) -> dict[str, pathlib.Path]:
    folder = work / ("small" if small else "models")
    names = ("unet3d", "srvgg_x4")
    if not all((folder / f"{name}.pt2").exists() for name in names):
        command = [sys.executable, ROOT / "tools/bench_models.py", "--out", folder, "--nets", ",".join(names)]
        subprocess.run(command + ["--small"] * small, check=True, stdout=subprocess.DEVNULL)
    return {name: folder / f"{name}.pt" for name in names}


def packages(model: pathlib.Path, work: pathlib.Path, job: dict, batches: list[int]) -> dict[int, str]:
    """A package for each batch size, made by tools/compile_model.py."""
    command = [sys.executable, ROOT / "tools/compile_model.py", model, "--out", work / "packages", "--device", job["device"],
               "--tile", str(job["tile"]), "--batches", ",".join(map(str, batches)), "--precision", job["precision"],
               "--layout", "nhwc"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    made = json.loads(done.stdout)["packages"] if done.stdout else []
    return {package["batch"]: package["path"] for package in made}


class Table:
    """Rows of one Markdown table, each with how many times as fast Tilery is."""

    def __init__(self):
        print("| what | model | volume or picture | result | batch | tiles/s | Tilery |\n|---|---|---|---|---|---|---|")

    def row(self, what, model, source, result, batch, rate, our_rate=None) -> None:
        fast = isinstance(rate, float)
        ratio = f"{our_rate / rate:.2f}x" if fast and isinstance(our_rate, float) else "-"
        print(f"| {what} | {model} | {source} | {result} | {batch} | {f'{rate:.4g}' if fast else rate} | {ratio} |", flush=True)


def compare_volume(args, models, table: Table) -> None:
    tile, overlap = (32, 8) if args.small else (128, 32)
    cpu = args.device == "cpu"
    job = {"model": str(models["unet3d"]), "extent": args.extent or (72 if args.small else 448), "tile": tile,
           "overlap": overlap, "window": "gaussian", "device": args.device, "precision": "fp32" if cpu else "fp16",
           "dtype": "float32" if cpu else "float16", "repeats": args.repeats}
    made = packages(models["unet3d"], args.work, job, args.batches)
    rates = {True: ours_compiled(args.tilery, models["unet3d"], job, made)}
    if "eager" in args.forms:
        rates[False] = ours(args.tilery, models["unet3d"], job)
    for compiled, rate in rates.items():
        table.row("Tilery", "compiled" if compiled else "eager", "host", "host", "auto", rate)
    if importlib.util.find_spec("monai") is None:
        print(MONAI_HINT, file=sys.stderr)
        return
    our_best = max((rate for rate in rates.values() if isinstance(rate, float)), default=None)
    for compiled in (form == "compiled" for form in args.forms):
        name = "compiled" if compiled else "eager"
        for source, result in (place for place in PLACES if place[1] in args.results):
            ways = [{"batch": batch, "buffer": buffer, "channels_last": last}
                    for batch in (sorted(made) if compiled else args.batches)
                    for buffer in ([None, 4] if result == "host" else [None])
                    for last in ([False, True] if args.channels_last and not compiled else [False])]
            answers = in_child("monai", {**job, "input": source, "output": result, "ways": ways,
                                         "packages": made if compiled else {}}) if ways else []
            good = [answer for answer in answers if "tiles_per_s" in answer]
            if not good:
                table.row("MONAI", name, source, result, "-", answers[-1]["error"] if answers else "no package")
                continue
            best = max(good, key=lambda answer: answer["tiles_per_s"])
            shown = f"{best['batch']}{', buffered' if best['buffer'] else ''}" + \
                f"{', channels last' if best['channels_last'] else ''}"
            table.row("MONAI", name, source, result, shown, best["tiles_per_s"], our_best)


def compare_picture(args, models, table: Table) -> None:
    contract = extra(models["srvgg_x4"])
    tile, overlap = (64, 16) if args.small else (contract["tiling"]["tile"], contract["tiling"]["overlap"])
    job = {"model": str(models["srvgg_x4"]), "extent": 160 if args.small else 2048, "tile": tile, "overlap": overlap,
           "window": "cosine", "scale": contract["scale"], "device": args.device, "repeats": args.repeats,
           "precision": "fp32" if args.device == "cpu" else "fp16"}
    rates = [ours(args.tilery, models["srvgg_x4"], job),
             ours_compiled(args.tilery, models["srvgg_x4"], job,
                           {} if args.device == "cpu" else packages(models["srvgg_x4"], args.work, job, args.batches))]
    rate = max((rate for rate in rates if isinstance(rate, float)), default=rates[0])
    table.row("Tilery", "x4 upscaler", "host", "host", "auto", rate)
    answer = in_child("loop", job)[-1]
    table.row("loop, one tile at a time", "x4 upscaler, fp32", "host", "host", 1,
              answer.get("tiles_per_s", answer.get("error")), rate)


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        kind, job = sys.argv[2:]
        MEASURES[kind](json.loads(job))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--tilery", default=str(ROOT / "build/bin/tilery"), help="the program to measure")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 8])
    parser.add_argument("--channels-last", action="store_true", help="let eager MONAI try that layout too")
    parser.add_argument("--extent", type=int, help="of the volume along each axis; default: 448")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", choices=["volume", "picture"])
    parser.add_argument("--forms", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"],
                        help="of the model; default: both")
    parser.add_argument("--results", nargs="+", choices=["device", "host"], default=["device", "host"],
                        help="where MONAI's lie; default: both")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    models = make_models(args.work, args.small)
    card = torch.cuda.get_device_name(0) if args.device != "cpu" else platform.processor() or "cpu"
    print(f"{card}, torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    table = Table()
    if args.only != "picture":
        compare_volume(args, models, table)
    if args.only != "volume":
        compare_picture(args, models, table)


if __name__ == "__main__":
    main()
