"""The figures over HTTP: `python -m bench.over_http [--quick] [--only NAME] [--json FILE]`.

Orchestrator, worker and client are three processes on loopback, on SQLite with fsync before every answer; both
servers are started through the command line, and the client is the library that users have. Otherwise as
`bench.core`, which see. `python -m bench.peers` puts other systems beside the same figures.
"""

import sys

from .core import main
from .http_benches import HTTP_BENCHES

if __name__ == "__main__":
    sys.exit(main(HTTP_BENCHES, "python -m bench.over_http", __doc__))
