"""The upscaler in configs/models and the sample job do what their cards say."""
import numpy as np
import tifffile
import torch
from PIL import Image

from conftest import ROOT

MODEL = ROOT / "configs/models/upscaler_x2.pt"
SAMPLES = ROOT / "configs/samples"


def test_tiles_of_a_real_photo_equal_one_forward_pass(run):
    photo = np.asarray(Image.open(SAMPLES / "coffee.png"))[:230, :260]
    Image.fromarray(photo).save(run.dir / "p.png")
    plan = run.ok("plan", "--model", MODEL, "--input", "p.png", "--output", "o.tif", "--tile", 96, "--overlap", 32, "--json").json
    assert plan["exact"] and plan["trim"] == [16, 16]
    run.ok("run", "--model", MODEL, "--input", "p.png", "--output", "o.tif", "--tile", 96, "--overlap", 32, "--output.dtype", "f32")
    net = torch.jit.load(str(MODEL)).eval()
    with torch.inference_mode():
        want = net(torch.from_numpy(photo.transpose(2, 0, 1).astype(np.float32) / 255)[None])[0].numpy()
    assert np.abs(tifffile.imread(run.dir / "o.tif").transpose(2, 0, 1) - want).max() < 1e-5


def test_the_upscaled_photo_is_closer_to_the_truth_than_bicubic(run):
    truth = Image.open(SAMPLES / "astronaut.png").convert("RGB").crop((100, 0, 356, 256))
    small = truth.resize((128, 128), Image.BICUBIC)
    small.save(run.dir / "s.png")
    run.ok("run", "--model", MODEL, "--input", "s.png", "--output", "o.png")

    def psnr(image):
        d = np.asarray(image, np.float64)[4:-4, 4:-4] - np.asarray(truth, np.float64)[4:-4, 4:-4]
        return 10 * np.log10(255 ** 2 / (d ** 2).mean())

    assert psnr(Image.open(run.dir / "o.png")) > psnr(small.resize((256, 256), Image.BICUBIC)) + 1.0
