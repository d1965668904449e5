"""How fast texts become vectors: the default encoder against sentence-transformers, one core each, in one run.

`python -m tests.bench.encoding`. The prompts are ours: the seeds and the held-out set, and long ones made of them,
mixed so that the median has about 31 tokens and 18 % have more than 256, as in public LLM traffic.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: the same one core for everybody

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from models import bundle, corpus
from models.backends import open_embedder
from models.clusters import Clusters
from models.embedder import Encoder
from models.evaluate import DATA, HELDOUT, SEEDS, embed, fitted, same_intent, splits
from models.fit import Recipe
from models.weights import locate, verify
from models.window import Window

PROMPTS, ROUNDS = 100, 3
ROOT = Path(__file__).parents[2]

RSS = """
import sys
from models import bundle
from models.backends import open_embedder
from models.embedder import Encoder
embed = open_embedder(bundle.load().encoder(Encoder(backend=sys.argv[1]))).embed
for i in range(200):
    embed("How do I sort a list of words by their length in Python? " * (i % 60))
print(int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20)
"""


def prompts() -> list[str]:
    """The mix, the same every time."""
    rng = random.Random(5)
    texts = [line.text for path in (SEEDS, HELDOUT) for line in corpus.read(path, labelled=True)]
    plain = Window(verify(), 512)
    short = [text for text in texts if plain.read(text).ids.size < 31]
    middling = [text for text in texts if plain.read(text).ids.size >= 31]
    counts = {"short": round(PROMPTS * 0.5), "long": round(PROMPTS * 0.18)}
    chosen = rng.sample(short, counts["short"])
    chosen += [" ".join(rng.sample(texts, rng.randint(28, 60))) for _ in range(counts["long"])]
    while len(chosen) < PROMPTS:
        chosen.append(" ".join(rng.sample(middling, rng.randint(1, 3))))
    rng.shuffle(chosen)
    return chosen


def interleaved(encoders: dict[str, Callable[[str], object]], texts: list[str]) -> dict[str, float]:
    """Texts/s of each: they take turns text by text, so that a busy machine is busy for all."""
    spent = dict.fromkeys(encoders, 0.0)
    for encode in encoders.values():
        for text in texts[:10]:
            encode(text)
    for turn in range(ROUNDS):
        for i, text in enumerate(texts):
            order = list(encoders)
            random.Random(turn * len(texts) + i).shuffle(order)
            for name in order:
                start = time.perf_counter()
                encoders[name](text)
                spent[name] += time.perf_counter() - start
    return {name: ROUNDS * len(texts) / seconds for name, seconds in spent.items()}


def resident_mb(backend: str) -> float:
    """Of a process that holds this encoder and nothing else, after 200 texts."""
    done = subprocess.run([sys.executable, "-c", RSS, backend], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # all encoders get this one core
    torch.set_num_threads(1)
    shipped = bundle.load()
    default = open_embedder(shipped.encoder())
    whole = open_embedder(Encoder())
    whole_256 = open_embedder(Encoder(tokens=256))
    same_window = open_embedder(shipped.encoder(Encoder(backend="sentence-transformers")))
    model = SentenceTransformer(str(locate()), device="cpu", local_files_only=True)
    texts = prompts()
    sizes = [Window(verify(), 512).read(text).ids.size for text in texts]
    print(
        f"{len(texts)} prompts of our own: median {np.median(sizes):.0f} tokens,"
        f" {np.mean(np.array(sizes) > 256):.0%} over 256; {ROUNDS} rounds, one core"
    )
    reference = "sentence-transformers fp32, its own 256 tokens"
    speeds = interleaved(
        {
            reference: lambda text: model.encode(text, normalize_embeddings=True, show_progress_bar=False),
            f"sentence-transformers fp32, 64 tokens, layer {default.fingerprint.layer}": same_window.embed,
            "onnx int8, 256 tokens, layer 6": whole_256.embed,
            "onnx int8, 64 tokens, layer 6": whole.embed,
            f"onnx int8, 64 tokens, layer {default.fingerprint.layer} (the default)": default.embed,
        },
        texts,
    )
    print("\n| encoder | texts/s | ratio |\n| --- | --- | --- |")
    for name, speed in speeds.items():
        print(f"| {name} | {speed:.0f} | {speed / speeds[reference]:.1f} |")

    clusters, vectors = Clusters(shipped), [default.embed(text).vector for text in texts]
    start = time.perf_counter()
    for vector in vectors * 20:
        clusters.assign(vector)
    print(f"\nassignment: {(time.perf_counter() - start) / len(vectors) / 20 * 1e6:.0f} µs a vector")

    for backend in ("onnx", "sentence-transformers"):
        print(f"resident memory, {backend}: {resident_mb(backend):.0f} MB")

    if not DATA.is_dir():
        print(f"{DATA} is absent: int8 against fp32 on CLINC150 not measured")
        return
    split, exact = splits(DATA)[0], open_embedder(shipped.encoder(Encoder(precision="fp32")))
    parts = embed(exact, split.seeds), embed(exact, split.traffic)
    plain = Clusters(fitted(split, parts, exact, Recipe(k=8, method="plain")))
    one, two = embed(default, split.test), embed(exact, split.test)
    for name, these in (("K-means k=8 fit on CLINC150", plain), ("the shipped bundle", clusters)):
        share, sure = same_intent(these, one, two)
        print(
            f"int8 and fp32 agree on {share:.1%} of {len(one)} CLINC150 queries"
            f" ({sure:.1%} where both are sure): {name}"
        )


if __name__ == "__main__":
    main()
