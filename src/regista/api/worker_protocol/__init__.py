"""The worker protocol over HTTP and WebSocket. Messages and frames are in `workers.protocol`."""
