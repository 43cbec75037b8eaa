"""Which aiohttp we know from the inside. With any other, everything goes the way that it has for everybody."""

import aiohttp

IS_KNOWN = aiohttp.__version__.startswith("3.14.")
