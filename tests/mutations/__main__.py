"""`python -m mutations`: makes each mistake of the catalogue and reports which test noticed it.

--only NAME…      just these
--tests PATH…     with these tests instead of those the catalogue names
"""

import argparse
import sys
import time

from mutations.catalogue import BY_NAME, MUTATIONS
from mutations.running import MutationRunner


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(BY_NAME), metavar="NAME")
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH")
    asked = parser.parse_args()
    chosen = [BY_NAME[name] for name in asked.only] or MUTATIONS
    missed = 0
    with MutationRunner() as runner:
        for mutation in chosen:
            begun = time.monotonic()
            outcome = runner.run(mutation, asked.tests)
            missed += not outcome.noticed
            verdict = f"noticed by {outcome.by}" if outcome.noticed else "NOT NOTICED\n" + outcome.by
            print(f"{mutation.name}: {verdict} ({time.monotonic() - begun:.1f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
