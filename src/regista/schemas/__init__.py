"""Bodies of the HTTP API: records that the server, the client and the command line share. Imports no aiohttp."""
