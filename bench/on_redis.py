"""The figures on Redis: `python -m bench.on_redis [--quick] [--only NAME] [--json FILE]`.

A redis-server of its own (append-only file, flushed every second), one or two orchestrators, workers and the client
library, all separate processes on loopback. Otherwise as `bench.core`, which see.
"""

import sys

from .core import main
from .redis_benches import REDIS_BENCHES

if __name__ == "__main__":
    sys.exit(main(REDIS_BENCHES, "python -m bench.on_redis", __doc__))
