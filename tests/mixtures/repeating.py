"""How lives come out, to compare with another process: `python -m mixtures.repeating SEED…`"""

import argparse
import gc
import hashlib

from mixtures.life import make_life
from mixtures.playing import play


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mixtures.repeating", description=__doc__)
    parser.add_argument("--garbage-after", type=int, help="so many objects, for Python; 0: never")
    parser.add_argument("seeds", type=int, nargs="+", metavar="SEED")
    given = parser.parse_args()
    if given.garbage_after is not None:
        gc.set_threshold(given.garbage_after)
    for seed in given.seeds:
        outcome = play(make_life(seed, claims=seed % 2 == 1), keep_text=True)
        text = outcome.text or "\n".join(outcome.problems)
        print(seed, hashlib.sha256(text.encode()).hexdigest())


if __name__ == "__main__":
    main()
