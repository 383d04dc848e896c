"""How lives come out, to compare with another process: `python -m mixtures.repeating SEED…`"""

import hashlib
import sys

from mixtures.life import make_life
from mixtures.playing import play


def main() -> None:
    for seed in map(int, sys.argv[1:]):
        outcome = play(make_life(seed), keep_text=True)
        text = outcome.text or "\n".join(outcome.problems)
        print(seed, hashlib.sha256(text.encode()).hexdigest())


if __name__ == "__main__":
    main()
