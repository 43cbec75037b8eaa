"""Storage on a server that several orchestrators share. `RedisStorage` is in `store`."""
