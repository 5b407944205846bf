"""From a model in Python to compiled packages, on the CPU."""
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILE = ROOT / "tools/compile_model.py"
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
import sys, torch
package, values, answer = sys.argv[1:]
x = torch.load(values)
if x.dim() == 4:
    x = x.contiguous(memory_format=torch.channels_last)
y = torch._inductor.aoti_load_package(package)(x)
assert y.is_contiguous(memory_format=torch.channels_last if y.dim() == 4 else torch.channels_last_3d)
torch.save(y.contiguous(), answer)
"""


def export(code, function, out, *options):
    return subprocess.run([sys.executable, ROOT / "tools/export_model.py", f"{code}:{function}", "--out", out,
                           *options], capture_output=True, text=True)


def start(model, out, *options):
    return subprocess.Popen([sys.executable, COMPILE, model, "--out", out, "--device", "cpu", *options],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    out, err = process.communicate()
    return process.returncode, out, err


TWO_TILES = ("--tile", "16", "--batches", "2", "--precision", "fp32")


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "net.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module")
def model(code):
    path = code.parent / "net.pt"
    done = export(code, "make", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def twice(model, tmp_path_factory):
    """What two processes said that were asked for the same package at the same time."""
    out = tmp_path_factory.mktemp("packages")
    (out / ".net.cpu.16x16.2.fp32.nhwc.pt2.dead.partial").mkdir()  # of one that was killed
    both = [start(model, out, *TWO_TILES, "--model-hash", "abc") for _ in range(2)]
    ends = [ended(process) for process in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    return out, [json.loads(said) for _, said, _ in ends]


@pytest.fixture(scope="module")
def package(twice):
    return twice[0] / "net.cpu.16x16.2.fp32.nhwc.pt2"


def answer_of(package, x, folder):
    torch.save(x, folder / "x.pt")
    subprocess.run([sys.executable, "-c", RUN, package, folder / "x.pt", folder / "y.pt"], check=True)
    return torch.load(folder / "y.pt")


def extra(path, name):
    with zipfile.ZipFile(path) as archive:
        entry, = [n for n in archive.namelist() if n.endswith(f"extra/{name}")]
        return json.loads(archive.read(entry))


def test_two_processes_compile_a_package_once(twice, package):
    assert sorted(said["packages"][0]["reused"] for said in twice[1]) == [False, True]
    assert [said["packages"][0]["path"] for said in twice[1]] == [str(package)] * 2
    assert sorted(twice[0].iterdir()) == [package]  # no lock, nothing half


def test_a_package_answers_as_the_model_does(model, package, tmp_path):
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    want = torch.jit.load(str(model))(x).detach()
    assert (answer_of(package, x, tmp_path) - want).abs().max() < 1e-4


def test_a_package_says_what_it_is_for(twice, package):
    want = {"gpu": "cpu", "capability": torch.backends.cpu.get_cpu_capability(),
            "torch": torch.__version__.split("+")[0], "tile": [16, 16], "batch": 2, "precision": "fp32",
            "layout": "nhwc", "io_dtype": "f32", "model_hash": "abc", "options": {}, "channels_in": 3,
            "channels_out": 3, "scale": 2}
    assert extra(package, "tilery_package.json") == want
    for said in twice[1]:
        assert {key: said["packages"][0][key] for key in want} == want
    assert extra(package, "tilery.json")["radius"] == 2


def test_a_package_of_other_weights_or_a_damaged_one_is_not_kept(twice, package):
    sys.path.insert(0, str(ROOT / "tools"))
    import package_build
    wanted = extra(package, "tilery_package.json")
    assert package_build.existing(package, wanted) == wanted
    assert package_build.existing(package, {**wanted, "model_hash": "def"}) is None
    cut = package.with_name("cut")
    cut.write_bytes(package.read_bytes()[:-1000])
    assert package_build.existing(cut, wanted) is None
    cut.unlink()


def test_torchscript_without_a_program_is_converted(code, tmp_path):
    assert export(code, "shrink", tmp_path / "shrink.pt").returncode == 0
    (tmp_path / "shrink.pt2").unlink()
    status, said, err = ended(start(tmp_path / "shrink.pt", tmp_path, "--tile", "4", "--batches", "3",
                                    "--precision", "fp32"))
    assert status == 0, err
    made = json.loads(said)["packages"][0]
    assert (made["scale"], made["tile"], made["channels_out"]) == ("1/2", [4, 4, 4], 5)
    assert re.fullmatch("sha256:[0-9a-f]{64}", made["model_hash"])
    x = torch.rand(3, 1, 4, 4, 4)
    want = torch.jit.load(str(tmp_path / "shrink.pt"))(x).detach()
    assert (answer_of(made["path"], x, tmp_path) - want).abs().max() < 1e-4


def test_a_program_of_other_weights_than_the_torchscript_is_refused(code, model, tmp_path):
    assert export(code, "other", tmp_path / "net.pt").returncode == 0
    (tmp_path / "net.pt").write_bytes(model.read_bytes())
    status, said, err = ended(start(tmp_path / "net.pt", tmp_path, *TWO_TILES))
    assert (status, said) == (2, "")
    assert "they are not the same model" in err


def test_what_must_be_put_right_first_is_said_in_words(model, package, tmp_path):
    asked = {
        ("--torch", "2.0.0"): "packages are for torch 2.0.0 and load in no other",
        ("--tile", "16,16,16"): "3 numbers for a model of 2 axes",
        ("--precision", "fp8"): "'fp8' is none of fp32, tf32, fp16, bf16",
        ("--device", "tpu"): "'tpu' is neither cpu nor cuda:N",
    }
    if not torch.cuda.is_available():
        asked[("--device", "cuda:0")] = "no GPU can be used here"
    started = {words: start(model, tmp_path, *TWO_TILES, *options) for options, words in asked.items()}
    started["is compiled already"] = start(package, tmp_path, *TWO_TILES)
    started["there is no such file"] = start(tmp_path / "none.pt", tmp_path, *TWO_TILES)
    for words, process in started.items():
        status, said, err = ended(process)
        assert (status, said) == (2, ""), err
        assert words in err


def test_a_model_that_contradicts_its_contract_is_not_exported(code, tmp_path):
    done = export(code, "wrong", tmp_path / "wrong.pt")
    assert done.returncode == 2
    assert "the model returns [2, 3, 128, 128]; its contract (scale, channels.out) says [2, 3, 256, 256]" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_tools_torch_is_the_one_that_is_installed():
    pinned = re.search(r"^torch==(\S+)", (ROOT / "tools/requirements.txt").read_text(), re.M).group(1)
    assert f'TORCH = "{pinned}"' in COMPILE.read_text()
