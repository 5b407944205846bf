#!/usr/bin/env python3
"""Photos for tools/train_upscaler.py: where they come from, their licences, and who is held out.

Training photos come out of Debian packages (apt-get download + dpkg -x, nothing is installed),
sample photos out of the scikit-image wheel on PyPI. Every photo is named below with its author
and licence as the package states them, so nothing enters the training set by accident.

  tools/upscaler_data.py DIR        fetch the training photos into DIR
  tools/upscaler_data.py --samples  write configs/samples again from the scikit-image wheel
"""
from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "configs" / "samples"

# One photo in HELD_OUT_SHARE is held out of training, chosen by the hash of its name.
HELD_OUT_SHARE = 8

SCALE = 2


@dataclass(frozen=True)
class Photo:
    """One photo of a package: its path below the package's folder, author and licence."""

    package: str
    path: str
    author: str
    licence: str

    @property
    def name(self) -> str:
        """A file name that is unique over all packages."""
        parts = Path(self.path).parts
        # KDE names every file by its size; the wallpaper's name is the folder.
        stem = parts[0] if len(parts) > 1 else Path(self.path).stem
        return f"{self.package.split('-')[0]}_{stem}{Path(self.path).suffix}"


FOLDERS = {
    "lomiri-wallpapers-16.04": "usr/share/backgrounds",
    "lomiri-wallpapers-20.04": "usr/share/backgrounds",
    "mate-backgrounds": "usr/share/backgrounds/mate/nature",
    "plasma-workspace-wallpapers": "usr/share/wallpapers",
}


def _lomiri() -> list[Photo]:
    package = "lomiri-wallpapers-16.04"
    rows = [
        ("aitzgorri_by_Aitzol_Berasategi", "Aitzol Berasategi", "CC-BY-4.0"),
        ("analogpattern_by_Peter_Nerlich", "Peter Nerlich", "CC-BY-SA-4.0"),
        ("Bridge_by_Sander_Klootwijk", "Sander Klootwijk", "CC-BY-SA-4.0"),
        ("Dragonfly_by_Bolly", "Bolly", "CC-BY-SA-4.0"),
        ("free_by_Peter_Nerlich", "Peter Nerlich", "CC-BY-SA-4.0"),
        ("friends_by_Aitzol_Berasategi", "Aitzol Berasategi", "CC-BY-4.0"),
        ("greentock_by_Peter_Nerlich", "Peter Nerlich", "CC-BY-SA-4.0"),
        ("life_by_Aitzol_Berasategi", "Aitzol Berasategi", "CC-BY-4.0"),
        ("picosdeeuropa_by_Aitzol_Berasategi", "Aitzol Berasategi", "CC-BY-4.0"),
        ("Picture_0B_by_freespace", 'Trevor "Freespace"', "CC-BY-4.0"),
        ("Picture_1A_by_freespace", 'Trevor "Freespace"', "CC-BY-4.0"),
        ("seeding_by_Clements_Engelhardt", "Clemens Engelhardt", "CC0-1.0"),
        ("sunset_by_Aitzol_Berasategi", "Aitzol Berasategi", "CC-BY-4.0"),
        ("Wine_by_Jakkub_Mede", "Jakub Mede", "CC-BY-4.0"),
    ]
    photos = [Photo(package, f"{stem}.jpg", author, licence) for stem, author, licence in rows]
    photos.append(Photo("lomiri-wallpapers-20.04", "Kleiber_by_Lukas_Baubkus.jpg",
                        "Lukas Baubkus", "CC-BY-SA-3.0"))
    return photos


def _mate() -> list[Photo]:
    rows = [
        ("Aqua", "Charles Barbin"), ("Blinds", "Lennart Poettering, Andrea Cimitan"),
        ("Dune", "Marco Cogoni, Hylke Bons"), ("FreshFlower", "Jens Ansorg"),
        ("Garden", "Charles Barbin"), ("GreenMeadow", "Timothy Schellhase, Lapo Calamandrei"),
        ("LadyBird", "Charles Barbin"), ("RainDrops", "blackcombwhistler07"),
        ("Storm", "Sergey Nazarov"), ("TwoWings", "Charles Barbin, Hylke Bons"),
        ("Wood", "Jean-François Fortin Tam"), ("YellowFlower", "Charles Barbin"),
    ]
    return [Photo("mate-backgrounds", f"{stem}.jpg", author, "GPL-2+") for stem, author in rows]


def _plasma() -> list[Photo]:
    # The licence is that of each wallpaper's own metadata.json; debian/copyright says GPL-2+.
    rows = [
        ("BytheWater", "Maciej Wiklo"), ("ColdRipple", "Risto Saukonpää"),
        ("ColorfulCups", "Dmitri Popov"), ("DarkestHour", "Risto Saukonpää"),
        ("EveningGlow", "Ian Hex"), ("FallenLeaf", "Martin Klapetek"), ("Grey", "Sigi Sagi"),
        ("Kite", "Risto Saukonpää"), ("OneStandsOut", "Risto Saukonpää"),
        ("Path", "Risto Saukonpää"), ("summer_1am", "Risto Saukonpää"),
    ]
    return [Photo("plasma-workspace-wallpapers", f"{stem}/contents/images/2560x1600.jpg", author,
                  "LGPL-3") for stem, author in rows]


PHOTOS: list[Photo] = _lomiri() + _mate() + _plasma()

# File in the scikit-image wheel -> licence as stated by the wheel's skimage/data/_fetchers.py.
SAMPLE_PHOTOS = {
    "astronaut.png": "public domain (NASA)",
    "chelsea.png": "CC0 (Stefan van der Walt)",
    "coffee.png": "CC0 (Rachel Michetti)",
    "rocket.jpg": "public domain (SpaceX)",
}


def is_held_out(name: str) -> bool:
    """The split depends on nothing but the name, so that new photos never move old ones."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_SHARE == 0


def split(folder: Path) -> tuple[list[Path], list[Path]]:
    """Returns (training photos, held-out photos) of `folder`, each sorted by name."""
    known = {photo.name for photo in PHOTOS}
    files = sorted(path for path in folder.iterdir() if path.name in known)
    train = [path for path in files if not is_held_out(path.name)]
    return train, [path for path in files if is_held_out(path.name)]


def fetch(folder: Path) -> None:
    """Downloads the packages and copies the named photos into `folder`, with SOURCES.json.

    Does nothing where all photos are there already. A package that the machine's apt does not
    know is reported and left out; without any photo this raises RuntimeError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if all((folder / photo.name).exists() for photo in PHOTOS):
        return
    sources = []
    for package, root in FOLDERS.items():
        with tempfile.TemporaryDirectory() as temp:
            print(f"fetching {package}", flush=True)
            got = subprocess.run(["apt-get", "download", "-q", package], cwd=temp,
                                 capture_output=True, text=True)
            debs = list(Path(temp).glob("*.deb"))
            if got.returncode or not debs:
                print(f"warning: no {package} here (try apt-get update): {got.stderr.strip()}",
                      file=sys.stderr)
                continue
            version = debs[0].name.split("_")[1].replace("%3a", ":")
            subprocess.run(["dpkg", "-x", str(debs[0]), f"{temp}/x"], check=True)
            for photo in (photo for photo in PHOTOS if photo.package == package):
                file = Path(temp) / "x" / root / photo.path
                if not file.exists():
                    print(f"warning: {package} {version} has no {photo.path}", file=sys.stderr)
                    continue
                shutil.copyfile(file, folder / photo.name)
                sources.append({"file": photo.name, "package": package, "version": version,
                                "author": photo.author, "licence": photo.licence})
    if not sources:
        raise RuntimeError(f"no photo could be fetched into {folder}: apt-get knows none of "
                           f"{', '.join(FOLDERS)}; run apt-get update, or fill the folder by hand")
    text = json.dumps(sources, indent=1, ensure_ascii=False) + "\n"
    (folder / "SOURCES.json").write_text(text, encoding="utf-8")


def load(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def even(image: Image.Image) -> Image.Image:
    width, height = image.size
    return image.crop((0, 0, width // SCALE * SCALE, height // SCALE * SCALE))


def shrink(image: Image.Image, factor: float) -> Image.Image:
    if factor == 1:
        return even(image)
    size = (round(image.width / factor), round(image.height / factor))
    return even(image.resize(size, Image.Resampling.LANCZOS))


def halve(image: Image.Image) -> Image.Image:
    """The degradation that the net undoes: Pillow's antialiased bicubic to half the size."""
    return image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.BICUBIC)


def clean(path: Path) -> Image.Image:
    """A photo made smaller, so that neither JPEG blocks nor the lens's blur are learnt."""
    image = load(path)
    return shrink(image, max(1.5, max(image.size) / 2560))


def write_samples(folder: Path = SAMPLES) -> None:
    """Copies the sample photos, byte for byte, out of the scikit-image wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                        "--only-binary=:all:", "-d", temp, "scikit-image==0.26.0"], check=True)
        wheel = next(Path(temp).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name in SAMPLE_PHOTOS:
                (folder / name).write_bytes(archive.read(f"skimage/data/{name}"))
        print(f"{len(SAMPLE_PHOTOS)} photos of {wheel.name} in {folder}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where the training photos go")
    parser.add_argument("--samples", action="store_true", help="write configs/samples again")
    args = parser.parse_args()
    if args.samples:
        write_samples()
    if args.folder:
        fetch(args.folder)
        train, held = split(args.folder)
        print(f"{len(train)} photos for training; held out: {', '.join(p.name for p in held)}")
    elif not args.samples:
        parser.error("name a folder, or --samples")


if __name__ == "__main__":
    main()
