"""Which aiohttp we know from the inside. With any other, everything goes the way that it has for everybody.

By exact versions: its insides change with the last number, too (with 3.14.3 requests would wait for ever).
"""

import aiohttp

#: Those that all of our tests have passed with.
KNOWN = frozenset({"3.14.5"})
IS_KNOWN = aiohttp.__version__ in KNOWN
