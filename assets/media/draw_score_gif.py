"""Draw the GIF of the README: a simulated episode, and the bundled model's output for each frame.

python assets/media/draw_score_gif.py runs/gif assets/media/score.gif
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from PIL import Image, ImageDraw

import embodied_rm as erm

SIZE_PX = 256
COLORS = {"progress": (38, 120, 178), "success": (214, 96, 40)}
MARGIN_PX = 34


def draw_curves(output: erm.ClipOutput, frame: int) -> Image.Image:
    """Return a chart of progress and success up to a frame."""
    chart = Image.new("RGB", (2 * SIZE_PX, SIZE_PX), "white")
    draw = ImageDraw.Draw(chart)
    left, top, right, bottom = MARGIN_PX, MARGIN_PX, 2 * SIZE_PX - MARGIN_PX, SIZE_PX - MARGIN_PX
    draw.line([(left, top), (left, bottom), (right, bottom)], fill=(120, 120, 120))
    for value in (0, 0.5, 1):
        y = bottom + (top - bottom) * value
        draw.text((left - 24, y - 6), f"{value:g}", fill=(90, 90, 90))
    last = max(len(output) - 1, 1)
    for row, (name, color) in enumerate(COLORS.items()):
        curve = getattr(output, name)[: frame + 1]
        points = [(left + (right - left) * t / last, bottom + (top - bottom) * float(v)) for t, v in enumerate(curve)]
        if len(points) > 1:
            draw.line(points, fill=color, width=3)
        draw.text((left + 12 + 130 * row, 12), f"{name} {curve[-1]:.2f}", fill=color)
    return chart


def main() -> None:
    """Record one episode, score it, and write the GIF."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="run folder of the recording")
    parser.add_argument("gif", type=Path)
    args = parser.parse_args()
    if not args.folder.exists():
        keys = ["tasks=[open_drawer]", "num_successes=1", "num_failures=0", f"env.image_size={SIZE_PX}", "seed=3"]
        keys += ["env.num_envs=1", "speed_range=[0.6,0.6]", f"out={args.folder}"]
        subprocess.run(["embodied-rm", "collect", *keys], check=True)
    episode = next(iter(erm.open_dataset(args.folder)))
    output = erm.load_reward_model().score(episode.views, episode.instruction)
    frames = []
    for t in range(len(episode)):
        view = Image.fromarray(episode.views["front"][t]).resize((SIZE_PX, SIZE_PX))
        image = Image.new("RGB", (3 * SIZE_PX, SIZE_PX + 26), "white")
        ImageDraw.Draw(image).text((10, 7), episode.instruction, fill=(30, 30, 30))
        image.paste(view, (0, 26))
        image.paste(draw_curves(output, t), (SIZE_PX, 26))
        frames.append(image.quantize(128))
    durations = [int(1000 / episode.fps)] * (len(frames) - 1) + [1500]
    frames[0].save(args.gif, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


if __name__ == "__main__":
    main()
