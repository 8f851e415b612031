"""`hush serve` for tests: its recalls are spread over seconds instead of minutes, or there are none at all.

python hasty_serve.py SECONDS PER_SECOND hush-arguments…        (SECONDS 0: it never recalls)
"""

import sys

from hush.__main__ import main
from hush_aggregator.delivery import recalls

if __name__ == "__main__":
    seconds, per_second = map(int, sys.argv[1:3])
    recalls.SHORTEST_S = max(seconds, 1)
    recalls._PER_SECOND = per_second
    recalls._DOUBTFUL_EVERY_S = 2 * max(seconds, 1)
    recalls._LOOK_S = 1.0
    if not seconds:
        recalls.is_recallable = lambda *_: False  # whatever the broker has forgotten
    sys.argv = ["hush", *sys.argv[3:]]
    main()
