"""From a model in Python to compiled packages, on the CPU: the scripts, and `tilery compile`, which runs them.

To compile takes some 20 seconds of a core, and to start Torch 5. So there are two packages, which the tests share, and
what can be refused before is asked of the functions, not of programs.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import model_files  # noqa: E402
import package_build  # noqa: E402

COMPILE = ROOT / "tools/compile_model.py"
TILERY = pathlib.Path(os.environ.get("TILERY", ROOT / "build/bin/tilery")).resolve()
TORCH = torch.__version__.split("+")[0]
CODE = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 12, 3, padding=1)

    def forward(self, x):
        return F.pixel_shuffle(self.b(torch.relu(self.a(x))), 2)

def make(seed=1):
    torch.manual_seed(seed)
    return Net(), {"dims": 2, "scale": 2, "channels": {"in": 3, "out": 3}, "range": [0, 1], "radius": 2}

def other():
    return make(2)

def wrong():
    return Net(), {"dims": 2, "scale": 4, "channels": {"in": 3, "out": 3}}

def large():
    net, contract = make()
    net.a.weight.data[0] = 1e6
    return net, contract

class Loop(nn.Module):
    def forward(self, x):
        while x.sum() > 1:
            x = x / 2
        return x

class Shrink(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv3d(1, 5, 2, stride=2)

    def forward(self, x):
        return self.a(x) * 2

def shrink():
    torch.manual_seed(3)
    return Shrink(), {"dims": 3, "scale": "1/2", "channels": {"in": 1, "out": 5}, "multiple": 2}
"""
# A process of its own: the loader of packages may not get on with what else this one has loaded.
RUN = """
import ctypes, pathlib, sys, torch
ctypes.CDLL(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so", ctypes.RTLD_GLOBAL)  # as in a worker
for package, values, answer in zip(*[iter(sys.argv[1:])] * 3):
    x = torch.load(values)
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    y = torch._inductor.aoti_load_package(package)(x)
    assert y.is_contiguous(memory_format=torch.channels_last if y.dim() == 4 else torch.channels_last_3d)
    torch.save(y.contiguous(), answer)
"""
TWO_TILES = ("--tile", "16", "--precision", "fp32")


def start(*command, env=None):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **(env or {})})


def ended(process):
    out, err = process.communicate()
    return process.returncode, out, err


def export(code, function, out):
    return ended(start(sys.executable, ROOT / "tools/export_model.py", f"{code}:{function}", "--out", out))


def tilery_compile(model, *options, env=None):
    return start(TILERY, "compile", model, "--device", "cpu", *options, env=env)


def made(code, function, *arguments):
    """What a function of the models' code gives, in this process."""
    spec = importlib.util.spec_from_file_location("net", code)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = getattr(module, function)(*arguments)
    net, contract = answer if isinstance(answer, tuple) else (answer, {})
    return net.eval().requires_grad_(False), contract


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "net.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    # What follows is not about the code's speed, nor about whether the compiler knows this processor.
    os.environ.update(XDG_CACHE_HOME=str(tmp_path_factory.mktemp("cache")), TORCHINDUCTOR_VEC_ISA_OK="1",
                      AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL="O0")
    return pathlib.Path(os.environ["XDG_CACHE_HOME"])


@pytest.fixture(scope="module")
def model(code):
    path = code.parent / "net.pt"
    status, _, err = export(code, "make", path)
    assert status == 0, err
    return path


@pytest.fixture(scope="module")
def model_hash(model):
    return json.loads(subprocess.check_output([TILERY, "inspect", model, "--json"]))["hash"]


@pytest.fixture(scope="module")
def twice(model, model_hash, tmp_path_factory):
    """What the script and the command said that were asked for the same package at the same time."""
    out = tmp_path_factory.mktemp("packages")
    (out / ".net.cpu.16x16.2.fp32.nhwc.pt2.dead.partial").mkdir()  # of one that was killed
    both = [start(sys.executable, COMPILE, model, "--out", out, "--device", "cpu", *TWO_TILES, "--batches", "2",
                  "--model-hash", model_hash),
            tilery_compile(model, "--output", out, *TWO_TILES, "--batch", "2", "--json")]
    ends = [ended(process) for process in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    return out, [json.loads(said) for _, said, _ in ends]


@pytest.fixture(scope="module")
def package(twice):
    return twice[0] / "net.cpu.16x16.2.fp32.nhwc.pt2"


@pytest.fixture(scope="module")
def converted(code):
    """A volume model of which there is TorchScript alone, and the package of it in the cache."""
    net, contract = made(code, "shrink")
    path = code.parent / "shrink.pt"
    model_files.save_torchscript(net, contract, path, [4, 4, 4], trace=True)
    status, said, err = ended(tilery_compile(path, "--tile", "4", "--batch", "3"))
    assert status == 0, err
    return path, pathlib.Path(re.fullmatch(r"(.*): compiled in [0-9.]+ s\n", said).group(1))


@pytest.fixture(scope="module")
def answers(model, package, converted, tmp_path_factory):
    """Of both models and their packages to the same values."""
    folder, arguments, wanted = tmp_path_factory.mktemp("answers"), [], []
    for script, compiled, shape in ((model, package, (2, 3, 16, 16)), (*converted, (3, 1, 4, 4, 4))):
        x = torch.rand(*shape, generator=torch.Generator().manual_seed(5))
        torch.save(x, folder / f"{script.stem}.x")
        wanted.append(torch.jit.load(str(script))(x).detach())
        arguments += [compiled, folder / f"{script.stem}.x", folder / f"{script.stem}.y"]
    subprocess.run([sys.executable, "-c", RUN, *arguments], check=True)
    return [(torch.load(answer), want) for answer, want in zip(arguments[2::3], wanted)]


def extra(path, name):
    with zipfile.ZipFile(path) as archive:
        entry, = [n for n in archive.namelist() if n.endswith(f"extra/{name}")]
        return json.loads(archive.read(entry))


def test_script_and_command_compile_a_package_once(twice, package):
    assert sorted(said["packages"][0]["reused"] for said in twice[1]) == [False, True]
    assert [said["packages"][0]["path"] for said in twice[1]] == [str(package)] * 2
    assert [said["failed"] for said in twice[1]] == [[], []]
    assert sorted(twice[0].iterdir()) == [package]  # no lock, nothing half


def test_a_package_answers_as_the_model_does(answers):
    for got, want in answers:
        assert got.shape == want.shape and (got - want).abs().max() < 1e-4


def test_a_package_says_what_it_is_for(twice, package, model_hash):
    want = {"gpu": "cpu", "capability": package_build.cpu_kind(),
            "torch": TORCH, "tile": [16, 16], "batch": 2, "precision": "fp32",
            "layout": "nhwc", "io_dtype": "f32", "model_hash": model_hash, "libraries": "", "options": {"cpp.threads": 1, "aot_inductor.link_libtorch": False},
            "channels_in": 3, "channels_out": 3, "scale": 2}
    assert extra(package, "tilery_package.json") == want
    for said in twice[1]:
        told = said["packages"][0]
        assert {key: told[key] for key in want if key in told} == {key: want[key] for key in want if key in told}
        assert {"gpu", "tile", "batch", "precision", "layout", "channels_in", "channels_out"} < told.keys()
    assert extra(package, "tilery.json")["radius"] == 2


def test_a_package_of_other_weights_or_a_damaged_one_is_not_kept(package):
    wanted = extra(package, "tilery_package.json")
    assert package_build.existing(package, wanted) == wanted
    assert package_build.existing(package, {**wanted, "model_hash": "def"}) is None
    cut = package.with_name("cut")
    cut.write_bytes(package.read_bytes()[:-1000])
    assert package_build.existing(cut, wanted) is None
    cut.unlink()


def test_torchscript_without_a_program_is_converted(converted, cache):
    assert converted[1].parent == cache / "tilery/packages"
    facts = extra(converted[1], "tilery_package.json")
    assert (facts["scale"], facts["tile"], facts["channels_out"]) == ("1/2", [4, 4, 4], 5)
    assert facts["precision"] == "fp32"  # as a job on a CPU


def test_a_program_of_other_weights_than_the_torchscript_is_refused(code, model, tmp_path):
    net, contract = made(code, "make", 2)
    model_files.save_both(net, contract, tmp_path / "net.pt", [16, 16], trace=True)
    cpu = package_build.find_device("cpu", TORCH)
    with pytest.raises(model_files.Refused, match="they are not the same model"):
        package_build.Source(tmp_path / "net.pt2", model, [16], None, cpu)


def test_what_must_be_put_right_first_is_said_in_words(model, package, tmp_path):
    cpu = package_build.find_device("cpu", TORCH)
    asked = {
        "packages are for torch 2.0.0 and load in no other": lambda: package_build.find_device("cpu", "2.0.0"),
        "3 numbers for a model of 2 axes":
            lambda: package_build.Source(model.with_suffix(".pt2"), model, [16, 16, 16], None, cpu),
        "there is no such file": lambda: model_files.kind_of(tmp_path / "none.pt"),
        "none.so: can't be loaded": lambda: package_build.load_libraries([tmp_path / "none.so"]),
    }
    if not torch.cuda.is_available():
        asked["no GPU can be used here"] = lambda: package_build.find_device("cuda:0", TORCH)
    for words, ask in asked.items():
        with pytest.raises(model_files.Refused, match=words):
            ask()


@pytest.mark.parametrize("options,words", [
    (("--precision", "fp8"), "'fp8' is none of fp32, tf32, fp16, bf16"),
    (("--device", "tpu"), "'tpu' is neither cpu nor cuda:N"),
])
def test_the_script_refuses_wrong_words_before_it_starts_torch(model, tmp_path, options, words):
    status, said, err = ended(start(sys.executable, COMPILE, model, "--out", tmp_path, *TWO_TILES, "--batches", "2",
                                    *options))
    assert (status, said) == (2, "") and words in err


def test_the_command_refuses_what_it_can_tell_without_python(model, package, code, tmp_path):
    asked = {
        (model, "--precision", "fp8"): ["--precision", "fp8", "fp32, tf32, fp16, bf16"],
        (model, "--device", "tpu"): ["--device", "tpu", "cuda:N"],
        (model, "--batch", "8,0"): ["--batch", "'0'"],
        (model, "--tile", "16x16x16"): ["tiling.tile", "3", "2 dimensions"],
        (package,): ["is compiled already"],
        (tmp_path / "none.pt2",): ["none.pt2", "there is no such file"],
        (code,): ["net.py", "no model"],
    }
    for options, words in asked.items():
        status, said, err = ended(start(TILERY, "compile", *options, env={"TILERY_PYTHON": "/none"}))
        assert (status, said) == (2, ""), err
        assert len(err.splitlines()) == 1 and all(word in err for word in words), err


def test_another_torch_is_named_with_the_way_out(model, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 1.2.3\n")
    python.chmod(0o755)
    status, said, err = ended(tilery_compile(model, env={"TILERY_PYTHON": str(python)}))
    assert (status, said) == (2, "")
    assert f"{python} has torch 1.2.3" in err and f"pip install torch=={TORCH}" in err


def test_a_script_with_branches_needs_its_program(code, tmp_path):
    contract = {"dims": 2, "scale": 1, "channels": {"in": 3, "out": 3}}
    net, _ = made(code, "Loop")
    model_files.save_torchscript(net, contract, tmp_path / "loop.pt", [16, 16], trace=False)
    status, said, err = ended(tilery_compile(tmp_path / "loop.pt", *TWO_TILES, "--json"))
    assert (status, said) == (2, "")
    last = err.splitlines()[-1]
    assert "no exported program loop.pt2 lies beside it" in last and "tools/export_model.py" in last


def test_what_cannot_be_compiled_is_reported_and_libraries_are_loaded_first(code, tmp_path):
    model = tmp_path / "large.pt2"
    net, contract = made(code, "large")
    model_files.save_program(model_files.export(net, contract, [16, 16]), contract, model)
    library, proof = tmp_path / "library.so", tmp_path / "loaded"
    source = f'__attribute__((constructor)) static void f(void) {{ fclose(fopen("{proof}", "w")); }}'
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], text=True, check=True,
                   input="#include <stdio.h>\n" + source)
    status, said, err = ended(tilery_compile(model, "--tile", "16", "--batch", "2", "--precision", "fp16", "--libraries",
                                             library, "--json"))
    assert status == 1 and proof.exists(), err
    report = json.loads(said)
    failed, = report["failed"]
    assert report["packages"] == []
    assert re.fullmatch(r"large-[0-9a-f]{16}\.cpu\.16x16\.2\.fp16\.nhwc\.pt2", failed["package"])
    assert "beyond what torch.float16 holds" in failed["reason"]
    assert "not compiled" in err.splitlines()[-1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_without_a_device_the_first_gpu_is_meant(model):
    command = (TILERY, "compile", model, *TWO_TILES[:2], "--batch", "2", "--json")
    for reused in (False, True):
        status, said, err = ended(start(*command))
        assert status == 0, err
        package, = json.loads(said)["packages"]
        assert package["reused"] == reused and package["gpu"] == torch.cuda.get_device_name(0)
        assert (package["precision"], package["layout"]) == ("fp16", "nhwc")


def test_a_model_that_contradicts_its_contract_is_not_exported(code, tmp_path):
    net, contract = made(code, "wrong")
    with pytest.raises(model_files.Refused) as refused:
        model_files.save_both(net, contract, tmp_path / "wrong.pt", [128, 128], trace=True)
    assert "the model returns [2, 3, 256, 256]; its contract (scale, channels.out) says [2, 3, 512, 512]" in str(refused)
    assert list(tmp_path.iterdir()) == []


def test_the_tools_torch_is_the_one_that_is_installed():
    pinned = re.search(r"^torch==(\S+)", (ROOT / "tools/requirements.txt").read_text(), re.M).group(1)
    assert f'TORCH = "{pinned}"' in COMPILE.read_text()
